"""People as rows: who signs in by what, and the role that each has in a project or in all of them."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.tables.access import account, member


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    """A person. `signs_in`: has done so; else was only named as a member."""

    id: int
    provider: str
    login: str
    name: str
    signs_in: bool
    last_signed_in_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """The role of a person; no project: in every one."""

    login: str
    provider: str
    name: str
    project: str | None
    role: str
    added_at: datetime
    last_signed_in_at: datetime | None


# Who was named as a member under this login becomes who signs in under it first. A login that has passed to somebody
# else is taken from who had it: rights stay with the provider's own id.
_SIGNED_IN = text(
    """WITH former AS (
         UPDATE account SET login = login || ' (former, #' || id || ')'
         WHERE provider = :provider AND login = :login AND subject IS NOT NULL AND subject <> :subject)
       SELECT id FROM account
       WHERE provider = :provider AND (subject = :subject OR (login = :login AND subject IS NULL))
       ORDER BY subject IS NULL LIMIT 1 FOR UPDATE"""
)


def signed_in(c: Connection, provider: str, *, subject: str, login: str, name: str, now: datetime) -> int:
    """Note that this person has signed in; the account's id."""
    who = {"provider": provider, "subject": subject, "login": login}
    c.execute(text("SELECT pg_advisory_xact_lock(hashtext('tidemark account ' || :login))"), {"login": login})
    known = c.execute(_SIGNED_IN, who).scalar_one_or_none()
    values = {**who, "name": name, "last_signed_in_at": now}
    if known is None:
        return int(c.execute(upsert(account).values(**values, created_at=now).returning(account.c.id)).scalar_one())
    # Named under a new login as well: that one's roles are this person's.
    c.execute(
        text(
            """WITH named AS (SELECT id FROM account WHERE provider = :provider AND login = :login AND id <> :id)
               UPDATE member SET account_id = :id WHERE account_id IN (SELECT id FROM named)
                 AND NOT EXISTS (SELECT FROM member m WHERE m.account_id = :id
                                   AND m.project_id IS NOT DISTINCT FROM member.project_id)"""
        ),
        {**who, "id": known},
    )
    c.execute(delete(account).where(account.c.provider == provider, account.c.login == login, account.c.id != known))
    c.execute(account.update().where(account.c.id == known).values(**values))
    return int(known)


ACCOUNTS = select(
    account.c.id,
    account.c.provider,
    account.c.login,
    account.c.name,
    account.c.subject.is_not(None).label("signs_in"),
    account.c.last_signed_in_at,
)


def accounts(c: Connection, limit: int) -> list[AccountRow]:
    """Everybody who is known, by name."""
    rows = c.execute(ACCOUNTS.order_by(account.c.name, account.c.login).limit(limit))
    return [AccountRow(**row._mapping) for row in rows]


def with_login(c: Connection, login: str, provider: str | None = None) -> list[AccountRow]:
    """Who is known by this login, however it is capitalized: nobody, one person, or one for each provider."""
    found = ACCOUNTS.where(func.lower(account.c.login) == login.lower())
    if provider is not None:
        found = found.where(account.c.provider == provider)
    return [AccountRow(**row._mapping) for row in c.execute(found.order_by(account.c.id))]


def name_account(c: Connection, provider: str, login: str, now: datetime) -> int:
    """Make an account for who has not signed in yet."""
    made = upsert(account).values(provider=provider, login=login, created_at=now).returning(account.c.id)
    return int(c.execute(made).scalar_one())


def role_of(c: Connection, account_id: int, project_id: int | None) -> str | None:
    mine = member.c.project_id.is_not_distinct_from(project_id)
    return c.execute(select(member.c.role).where(member.c.account_id == account_id, mine)).scalar_one_or_none()


def set_role(c: Connection, account_id: int, project_id: int | None, role: str, now: datetime) -> None:
    statement = upsert(member).values(account_id=account_id, project_id=project_id, role=role, added_at=now)
    c.execute(statement.on_conflict_do_update(index_elements=["account_id", "project_id"], set_={"role": role}))


def remove_role(c: Connection, account_id: int, project_id: int | None) -> bool:
    mine = member.c.project_id.is_not_distinct_from(project_id)
    return c.execute(delete(member).where(member.c.account_id == account_id, mine)).rowcount == 1


_MEMBERS = text(
    """SELECT a.login, a.provider, a.name, p.slug AS project, m.role, m.added_at, a.last_signed_in_at
       FROM member m JOIN account a ON a.id = m.account_id LEFT JOIN project p ON p.id = m.project_id
       WHERE m.project_id IS NULL OR m.project_id = CAST(:project AS integer)
       ORDER BY m.project_id IS NULL, a.name, a.login"""
)


def members(c: Connection, project_id: int | None) -> list[MemberRow]:
    """Who has a role in the project, and after them who has one in every project; without a project, these alone."""
    return [MemberRow(**row._mapping) for row in c.execute(_MEMBERS, {"project": project_id})]


def administrators(c: Connection) -> int:
    """How many administer the whole service."""
    everywhere = member.c.project_id.is_(None) & (member.c.role == "admin")
    return len(c.execute(select(member.c.id).where(everywhere)).all())
