"""The frame of every page: who is reading, which project, what is open, the theme; and the request's database."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import Connection, Engine

from backend.regression.policy import Policy, PolicyBook
from backend.services.base import access
from backend.services.base.config import ServiceConfig
from backend.services.base.confine import confine, hides_something, require_all, require_of, visible_projects
from backend.services.base.errors import Unauthenticated
from backend.services.base.principal import Principal, Scope, Via
from backend.services.base.reads import SAFE_METHODS, Reads, may_lag
from backend.services.policy.resolve import policy_book
from backend.services.reports import overview
from backend.store.reports.overview import KnownProject, Project
from frontend import numbers
from frontend.links import Here
from frontend.render import forget, html_response, refusal_of, render

THEMES = ("light", "dark")
THEME_COOKIE = "tidemark_theme"
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
NAV = (
    ("overview", "Overview", "/"),
    ("board", "Board", "/board"),
    ("regressions", "Regressions", "/regressions"),
    ("compare", "Compare", "/compare"),
    ("workers", "Workers", "/workers"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The bar and the footer."""

    projects: tuple[str, ...] = ()
    project: str | None = None
    project_path: str = "/board"
    open_regressions: int = 0
    last_result_at: datetime | None = None
    nav: tuple[tuple[str, str, str], ...] = NAV
    theme: str | None = None
    csrf: str | None = None
    signed_in: str | None = None
    administers: bool = False
    may_submit: bool = False
    may_write: bool = False
    version: str = ""
    rule: str = ""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


def rule_in_short(policy: Policy) -> str:
    """The rule in one line."""
    size, runs = numbers.threshold(policy.min_change), policy.sustained_runs
    return f"≥ {size} and outside this series’ noise, sustained over {runs} runs"


def connection(request: Request) -> Iterator[Connection]:
    """A transaction for this request, on the replica where that will do; a page that only reads commits nothing."""
    reads = cast(Reads, request.app.state.reads)
    with reads.begin(may_lag=may_lag(request.method, request.headers, request.cookies)) as opened:
        yield opened


Database = Annotated[Connection, Depends(connection, scope="function")]


def identified(request: Request, c: Database) -> Principal:
    """The caller. If they may not see the project that the address names, it does not exist for them."""
    config = cast(ServiceConfig, request.app.state.config)
    principal = access.identify(
        c,
        authorization=request.headers.get("authorization"),
        session=request.cookies.get(access.SESSION_COOKIE),
        public_read=config.public_read,
        now=datetime.now(UTC),
        used=request.app.state.last_used,
    )
    named = [*((name, str(value)) for name, value in request.path_params.items()), *request.query_params.multi_items()]
    confine(c, principal, named)
    return principal


def reader(principal: Annotated[Principal, Depends(identified)]) -> Principal:
    """Who may read something here. Pages are public only where the service says so."""
    principal.require(Scope.READ)
    return principal


AnyPrincipal = Annotated[Principal, Depends(identified)]
Reader = Annotated[Principal, Depends(reader)]


def theme_of(request: Request) -> str | None:
    """The address overrides the cookie; without either the system's choice holds."""
    asked = request.query_params.get("theme") or request.cookies.get(THEME_COOKIE)
    return asked if asked in THEMES else None


def bare_frame(request: Request) -> Frame:
    """For pages that must come without the database: errors."""
    config = cast(ServiceConfig, request.app.state.config)
    return Frame(theme=theme_of(request), version=config.version, rule=rule_in_short(Policy()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request for a page: where it is, who reads, the database, the time."""

    request: Request
    c: Connection
    principal: Principal
    here: Here
    now: datetime
    config: ServiceConfig
    projects: tuple[KnownProject, ...]

    def project(self, asked: str | None = None) -> str | None:
        """The requested project, else the one that was last active."""
        wanted = asked or self.here.get("project")
        if wanted:
            return wanted
        if len(self.projects) < 2:
            return self.projects[0].slug if self.projects else None
        listed = overview.list_projects(self.c, only={each.id for each in self.projects})
        newest = max(listed, key=lambda each: (each.last_result_at or LONG_AGO, each.created_at), default=None)
        return None if newest is None else newest.slug

    def summary(self, project: str | None) -> Project | None:
        """What is open and waiting in it, and when it had a result; None: they see no such project."""
        mine = next((each for each in self.projects if each.slug == project), None)
        return None if mine is None else overview.summary_of(self.c, mine.id)

    @property
    def shown_projects(self) -> frozenset[str] | None:
        """The projects that a page about all of them may name; None: every one."""
        return frozenset(each.slug for each in self.projects) if hides_something(self.c, self.principal) else None

    def policies(self, project: str | None) -> PolicyBook:
        """By which the series of a project are judged; the built-in ones where there is no project yet."""
        return policy_book(self.c, project) if project else PolicyBook("")

    def may(self, scope: Scope, project: str | None) -> bool:
        """Whether who reads may do this in the project; without one, for the whole service."""
        mine = next((each for each in self.projects if each.slug == project), None)
        return self.principal.may(scope) if mine is None else self.principal.may_in(scope, mine)

    def check_action(
        self, csrf_token: str, scope: Scope, *, project: str | None = None, regressions: Sequence[int] = ()
    ) -> None:
        """Refuse a form that is not one of our own, or comes from who may not do this: in the project, in that of each
        regression, or, where neither is named, for the whole service."""
        for kind, key in (
            *([("project", project)] if project else []),
            *(("regression", str(it)) for it in regressions),
        ):
            require_of(self.c, self.principal, scope, kind, key)
        if not project and not regressions:
            require_all(self.c, self.principal, scope)
        self.check_own_page(csrf_token)

    def check_own_page(self, csrf_token: str) -> None:
        """Refuse a form that is not one of our own."""
        if self.principal.via is Via.SESSION:
            access.check_page_action(
                session=self.request.cookies.get(access.SESSION_COOKIE) or "",
                token=csrf_token,
                origin=self.request.headers.get("origin"),
                host=self.request.headers.get("host"),
                config=self.config,
            )

    @property
    def providers(self) -> tuple[str, ...]:
        """By what people can sign in by name."""
        return tuple(self.request.app.state.providers)

    def in_transaction(self) -> AbstractContextManager[Connection]:
        """A separate transaction, for what more must follow once it is committed."""
        return cast(Engine, self.request.app.state.engine).begin()

    @contextmanager
    def once_more(self, project: str | None) -> Iterator[Connection]:
        """A separate transaction to continue reading in, if the reader may still read this project, which the address
        need not name: a role may be removed meanwhile, or the project become private."""
        request = self.request
        reads = cast(Reads, request.app.state.reads)
        with reads.begin(may_lag=may_lag(request.method, request.headers, request.cookies)) as c:
            principal = reader(identified(request, c))
            confine(c, principal, [("project", project)] if project else [])
            yield c

    def repository_url(self, project: str) -> str | None:
        """Where the project's commits can be seen."""
        return next((each.repository_url for each in self.projects if each.slug == project), None)

    def frame(self, project: str | None, path: str = "/board") -> Frame:
        mine = self.summary(project)
        session = self.request.cookies.get(access.SESSION_COOKIE)
        signed_in = self.principal.via is Via.SESSION
        here = (
            self.here
            if self.here.get("project")
            else Here(self.here.path, [*self.here.pairs, ("project", project or "")])
        )
        return Frame(
            projects=tuple(each.slug for each in self.projects),
            project=project,
            project_path=path,
            open_regressions=0 if mine is None else mine.open_regressions,
            last_result_at=None if mine is None else mine.last_result_at,
            nav=tuple((key, label, here.page(target)) for key, label, target in NAV),
            theme=theme_of(self.request),
            csrf=access.csrf_token(session) if signed_in and session else None,
            signed_in=self.principal.name if signed_in else None,
            administers=self.may(Scope.ADMIN, project),
            may_submit=self.may(Scope.SUBMIT, project),
            may_write=self.may(Scope.WRITE, project),
            version=self.config.version,
            rule=rule_in_short(self.policies(project).general),
            now=self.now,
        )

    def page(
        self,
        template: str,
        *,
        page: str,
        title: str,
        description: str,
        project: str | None,
        path: str = "/board",
        **context: Any,
    ) -> HTMLResponse:
        """The whole page."""
        frame = self.frame(project, path)
        refused = refusal_of(self.request)
        html = render(
            template,
            {
                "frame": frame,
                "page": page,
                "title": title,
                "description": description,
                "here": self.here,
                "now": self.now,
                "refused": refused,
            }
            | context,
        )
        response = html_response(self.request, html)
        if refused:
            forget(response)
        if self.request.method not in SAFE_METHODS:
            response.headers["Cache-Control"] = "no-store"  # it may hold a secret that is shown this once
        return response


def visit(request: Request, c: Database, principal: Reader) -> Visit:
    return _visit(request, c, principal)


def visit_of_oneself(request: Request, c: Database, principal: AnyPrincipal) -> Visit:
    """A visit to what everybody has who is signed in, with a role or without."""
    if principal.via is not Via.SESSION:
        raise Unauthenticated("this is about who is signed in")
    return _visit(request, c, principal)


def _visit(request: Request, c: Connection, principal: Principal) -> Visit:
    config = cast(ServiceConfig, request.app.state.config)
    here = Here(request.url.path, request.query_params.multi_items())
    return Visit(
        request=request,
        c=c,
        principal=principal,
        here=here,
        now=datetime.now(UTC),
        config=config,
        projects=overview.known_projects(c, only=visible_projects(c, principal)),
    )


Visiting = Annotated[Visit, Depends(visit)]
VisitingOneself = Annotated[Visit, Depends(visit_of_oneself)]
