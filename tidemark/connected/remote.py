"""The API as a command meets it: addressed, authorised, its refusals turned into one line. Standard library only."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark.machine.datadir import ADMIN_TOKEN, DataDirectory, resolve_data_dir
from tidemark.refusal import Refusal, printable

TIMEOUT_S = 60.0
IMPORT_TIMEOUT_S = 900.0
VERSIONS_SHOWN = 5
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # how files of gzip and zstd begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where the service is and who we are to it."""

    url: str
    token: str | None

    def submit(self, body: bytes) -> dict[str, Any]:
        """Delivers a run; sending the same bytes again is no harm."""
        try:
            run_id = json.loads(body)["id"]
        except ValueError as error:
            raise Refusal(f"the file is no tidemark.run/1: it is no JSON ({error})") from None
        except (KeyError, TypeError):
            raise Refusal("the file is no tidemark.run/1: it has no id") from None
        return self._ask("PUT", f"/api/v1/runs/{urllib.parse.quote(str(run_id), safe='')}", body=body)

    def deliver(self, run_id: str, body: bytes) -> tuple[dict[str, Any], bool]:
        """Delivers a run of this id; the answer, and whether it is new there."""
        status, answer = self._exchange("PUT", f"/api/v1/runs/{urllib.parse.quote(run_id, safe='')}", body=body)
        return answer, status == 201

    def import_runs(self, project: str, bodies: Sequence[bytes], *, dry_run: bool) -> dict[str, Any]:
        """Delivers many runs at once, one a line; with `dry_run` the service takes it back and says what it was."""
        query = urllib.parse.urlencode({"project": project, "dry_run": str(dry_run).lower()})
        body = b"\n".join(bodies)
        return self._exchange("POST", f"/api/v1/import/run?{query}", body=body, timeout_s=IMPORT_TIMEOUT_S)[1]

    def add_project(self, project: str, repository: str, *, branch: str | None, trusted: bool | None) -> dict[str, Any]:
        """Registers a repository, or changes what is registered; it is read at once. None leaves as it is."""
        stated = {"repository_url": repository, "default_branch": branch, "trusted": trusted}
        return self.change_project(project, {name: value for name, value in stated.items() if value is not None})

    def change_project(self, project: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Changes what is named, and nothing else."""
        return self._ask("POST", "/api/v1/projects", body=json.dumps({"project": project, **change}).encode())

    def project(self, project: str) -> dict[str, Any]:
        return self.get(f"/api/v1/projects/{urllib.parse.quote(project, safe='/')}")

    def pull_requests(self, project: str, state: str | None) -> dict[str, Any]:
        return self.get("/api/v1/pull-requests", project=project, state=state)

    def approve(self, project: str, number: int, commit: str) -> dict[str, Any]:
        """Lets exactly this commit of a fork onto the workers."""
        body = json.dumps({"project": project, "commit": commit}).encode()
        return self._ask("POST", f"/api/v1/pull-requests/{number}/approve", body=body)

    def text(self, path: str) -> str:
        """An answer that is text rather than JSON."""
        request = urllib.request.Request(f"{self.url}{path}")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            raise Refusal(_problem(error)) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Refusal(f"no answer from {self.url} ({reason}); is it running, and is --url right?") from None
        except (ValueError, http.client.HTTPException):
            raise Refusal(f"{self.url} does not speak Tidemark's API; is --url right?") from None

    def regressions(self, limit: int, **filters: str | None) -> dict[str, Any]:
        return self.get("/api/v1/regressions", limit=limit, **filters)

    def explain(self, series: int, commit: str) -> dict[str, Any]:
        return self.get(f"/api/v1/series/{series}/explain", commit=commit)

    def policy(self, project: str) -> dict[str, Any]:
        return self.get(_policy_path(project))

    def preview_policy(self, project: str, table: Mapping[str, Any], *, days: int, declared: bool) -> dict[str, Any]:
        """Preview these thresholds over the last days; `declared`: as the [policy] of tidemark.toml."""
        return self.post(f"{_policy_path(project)}/preview", {"policy": table, "days": days, "declared": declared})

    def choose_policy(self, project: str, table: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask("PATCH", _policy_path(project), body=json.dumps({"policy": dict(table)}).encode())

    def get(self, path: str, **query: str | int | None) -> dict[str, Any]:
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask("GET", f"{path}?{urllib.parse.urlencode(given)}" if given else path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._ask("POST", path, body=json.dumps(dict(body or {})).encode())

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request with a JSON body, or with none; the answer, which may be empty."""
        return self._ask(method, path, body=None if body is None else json.dumps(dict(body)).encode())

    def _ask(self, method: str, path: str, *, body: bytes | None = None) -> dict[str, Any]:
        return self._exchange(method, path, body=body)[1]

    def _exchange(
        self, method: str, path: str, *, body: bytes | None = None, timeout_s: float = TIMEOUT_S
    ) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"{self.url}{path}", data=body, method=method)
        request.add_header("Accept", "application/json")
        if body is not None:
            request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                status, answer = response.status, {} if response.status == 204 else json.load(response)
        except urllib.error.HTTPError as error:
            raise Refusal(_problem(error)) from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise Refusal(f"no answer from {self.url} ({reason}); is it running, and is --url right?") from None
        except (ValueError, http.client.HTTPException):
            raise Refusal(f"{self.url} does not speak Tidemark's API; is --url right?") from None
        return status, answer if isinstance(answer, dict) else {"items": answer}


def service(url: str | None, token: str | None) -> Service:
    """The service that is meant: the options, else TIDEMARK_URL and TIDEMARK_TOKEN, else the one running here.

    The data directory's token goes to the service running on it and nowhere else.
    """
    found = service_if_any(url, token)
    if found is None:
        raise Refusal(
            f"no service is running on {resolve_data_dir()}; start one with `tidemark up`, name the directory of "
            "another with `tidemark --data-dir DIR …`, or its address with --url"
        )
    return found


def service_if_any(url: str | None, token: str | None) -> Service | None:
    """As `service`; None where none is named and none is running here."""
    data_dir = resolve_data_dir()
    running = DataDirectory(data_dir).running() if _readable(data_dir / "supervisor.json") else None
    here = running.url if running is not None and running.alive else None
    chosen = url or os.environ.get("TIDEMARK_URL") or here
    if chosen is None:
        return None
    chosen = chosen.rstrip("/")
    if not chosen.startswith(("http://", "https://")):
        raise Refusal(f"--url {chosen!r} must begin with http:// or https://")
    known = token or os.environ.get("TIDEMARK_TOKEN")
    if known is None and chosen == here and _readable(data_dir / ADMIN_TOKEN):
        known = DataDirectory(data_dir).read_private(ADMIN_TOKEN)
    return Service(url=chosen, token=known)


def read_run(file: Path) -> bytes:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise Refusal(f"cannot read {file}: {error.strerror}") from None
    if data.startswith(COMPRESSED):
        raise Refusal(f"{file} is compressed: unpack it, or let `tidemark import` read it")
    return data


def address_of(repository: str) -> str:
    """A directory of this machine as the file:// address git reads it by; other addresses as they are."""
    path = Path(repository).expanduser()
    if "://" in repository:
        return repository
    if path.is_dir():
        _must_be_read_by_git(path)
        return path.resolve().as_uri()
    if ":" not in repository:
        raise Refusal(f"{path.absolute()} is no directory; accepted: a directory, https://, ssh://, user@host:path")
    return repository


def _must_be_read_by_git(path: Path) -> None:
    command = ["git", "-C", str(path), "rev-parse", "--git-dir"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        said = next(iter(done.stderr.strip().splitlines()), "git refused")
        raise Refusal(f"{path.absolute()} is no git repository that can be read: {said}")


def regressed(answer: Mapping[str, Any]) -> bool:
    """Whether a gate is red here. A suspect is none, nor is what a run fixed, nor a metric that is only watched."""
    return any(v.get("red") for v in answer.get("verdicts", ()))


def describe_verdicts(answer: Mapping[str, Any]) -> str:
    verdicts = answer.get("verdicts", [])
    lines = [f"run {answer.get('run_id')}: {answer.get('status')}"]
    for verdict in verdicts:
        change = "" if verdict.get("change") is None else f"{verdict['change']:+8.1%}"
        variant = f"[{verdict['variant']}]" if verdict.get("variant") else ""
        name = f"{verdict.get('benchmark')}{variant} {verdict.get('metric')}"
        needed = verdict.get("needed_runs") or 0
        more = f"; {needed} more run{'' if needed == 1 else 's'} needed" if needed else ""
        place = f"(series {verdict.get('series_id')}{more})"
        lines.append(f"  {verdict.get('verdict', ''):<13}{change:>9}  {name}  {place}")
    if not verdicts:
        lines.append("  nothing in it is judged")
    lines += [f"  warning: {warning}" for warning in answer.get("warnings", ())]
    return "\n".join(lines)


def describe_regressions(answer: Mapping[str, Any], *, narrowed: bool = False) -> str:
    items = answer.get("items", [])
    if not items:
        return "no such regressions (`tidemark regressions` lists all)" if narrowed else "no regressions"
    lines = []
    several = len({item.get("project") for item in items}) > 1
    for item in items:
        change = item.get("change") if item.get("change") is not None else item.get("magnitude")
        shown = "" if change is None else f"{change:+.1%}"
        commit = str(item.get("onset_commit") or item.get("commit") or "")[:10]
        where = f"  ({item.get('project')})" if several else ""
        lines.append(
            f"#{item.get('id'):<5} {item.get('state', ''):<13} {item.get('cause') or '':<12} {shown:>8}  {commit:<10}  "
            f"{item.get('title') or item.get('benchmark') or ''}{where}"
        )
    if answer.get("next"):
        lines.append("… more: raise --limit")
    return "\n".join(lines)


def describe_projects(items: Sequence[Mapping[str, Any]]) -> str:
    """One line a project: what is open in it, and where its commits come from."""
    if not items:
        return "no projects (`tidemark project add` makes one)"
    width = max(len(item["slug"]) for item in items)
    return "\n".join(
        f"{item['slug']:<{width}}  {item['open_regressions']:>4} open  "
        f"{printable(item['repository_url'] or 'no repository: its results are delivered')}"
        for item in items
    )


def describe_project(found: Mapping[str, Any]) -> str:
    """How a project is connected to GitHub, for a person."""
    settings = found.get("settings") or {}
    github, oidc = settings.get("github") or {}, settings.get("oidc") or {}
    lines = [
        f"{found.get('slug')}: {found.get('repository_url') or 'no repository'}, branch {found.get('default_branch')}",
        f"  events from GitHub   {github.get('repository') or 'nothing yet: no webhook has come'}",
        f"  issues               {'one for each confirmed regression' if github.get('issues') else 'none'}",
        f"  approving label      {github.get('approval_label') or 'tidemark'}",
        f"  workflows of         {oidc.get('repository') or 'its own repository'}",
        f"  on refs              {', '.join(oidc.get('refs') or ['any'])}",
        f"  in environments      {', '.join(oidc.get('environments') or ['any, or none'])}",
    ]
    if found.get("sync_error"):
        lines.append(f"  not read             {printable(found['sync_error'])}")
    return "\n".join(lines)


def describe_pull_requests(answer: Mapping[str, Any]) -> str:
    items = answer.get("items", [])
    lines = []
    for item in items:
        waits = item["state"] == "open" and item["is_fork"] and item["approved_sha"] != item["head_sha"]
        said = printable(f"{item['title']} ({item['author']})")
        lines.append(f"#{item['number']:<5} {item['state']:<7} {item['head_sha'][:12]}  {said}")
        if waits:
            lines.append(f"       waits for an approval of {item['head_sha']}")
        if item.get("error"):
            lines.append(f"       {item['error']}")
    return "\n".join(lines) or "no pull requests"


def describe_explanation(answer: Mapping[str, Any]) -> str:
    """Why the point was judged so, and below it what the noise of its series lets one see."""
    said, profile, policy = [answer["text"]], answer["series"].get("profile"), answer.get("policy")
    if policy is not None:
        own = ", ".join(f"{row['name']} = {row['value']:g}" for row in policy)
        said.append(f"Policy {answer['policy_version']}: {own or 'the built-in thresholds'}.")
    if profile is not None:
        said.append(f"The series: {profile['text']}")
    return "\n\n".join(said)


def read_policy(file: Path) -> dict[str, Any]:
    """The [policy] of a tidemark.toml, with that of each of its suites as an override."""
    import tomllib

    try:
        document = tomllib.loads(file.read_text())
    except OSError as error:
        raise Refusal(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refusal(f"{file} is no TOML: {error}") from None
    policy = document.get("policy", {})
    if not isinstance(policy, dict):
        raise Refusal(f"{file}: policy is {policy!r}; a table is accepted")
    suites = document.get("suite", {})
    own = {name: suite.get("policy") or {} for name, suite in suites.items()} if isinstance(suites, dict) else {}
    scoped = [
        {**entry, "suite": name}
        for name, table in own.items()
        for entry in ({k: v for k, v in table.items() if k != "override"}, *table.get("override", []))
        if entry
    ]
    return {**policy, "override": [*policy.get("override", []), *scoped]} if scoped else policy


def _threshold(row: Mapping[str, Any]) -> str:
    """Its value; of a fraction also in per cent: who writes 3 and means 0.03 sees 300 %."""
    return f"{row['value']:g}" + (f" ({100 * row['value']:g} %)" if row["unit"] == "fraction" else "")


def describe_policy(answer: Mapping[str, Any]) -> str:
    """The thresholds that are not the built-in ones, where they come from, and how far judging again has come."""
    changed = [row for row in answer["effective"] if row["overridden"]]
    lines = [f"{row['name']} = {_threshold(row)}  {row['title']}" for row in changed]
    lines = lines or ["the built-in thresholds, nothing changed (`tidemark policy preview` tries others)"]
    for where, title in (("declared", "by tidemark.toml"), ("chosen", "chosen")):
        if answer[where]:
            lines.append(f"{title}: {json.dumps(answer[where])}")
    if answer["points_per_week"]:  # counted once a day
        lines.append(f"{answer['points_per_week']} points of gate metrics were judged in a week")
    lines += [
        f"{version['at'][:16]}  policy {version['version']} by {version['by']}: {json.dumps(version['chosen'])} chosen"
        for version in answer.get("versions", ())[:VERSIONS_SHOWN]
    ]
    again = answer["rejudging"]
    if again is not None:
        state = "judged again" if again["finished_at"] else "being judged again"
        lines.append(f"{again['done']} of {again['total']} series {state}")
    if answer["rejudging_late"]:
        lines.append(f"{answer['rejudging_late']} series are still to be judged again, as a point arrived very late")
    return "\n".join(lines)


def describe_preview(answer: Mapping[str, Any]) -> str:
    """Describe a policy preview: alarms added, and alarms gone."""
    lines = [
        f"in the last {answer['days']} days: {answer['then']} regressions instead of the {answer['now']} listed; "
        f"the thresholds of {answer['affected']} of {answer['series']} series would change"
    ]
    if answer["judged"] < answer["affected"]:
        lines.append(f"judged again in an even sample of {answer['judged']} of them: all would take too long")
    for sign, name in (("+", "added"), ("-", "removed")):
        for flag in answer[name]:
            what = f"{flag['benchmark']} {flag['variant_key']} {flag['metric']} on {flag['testbed']}"
            what += f" and {flag['series'] - 1} more" if flag["series"] > 1 else ""
            lines.append(f"{sign} {(flag['sha'] or '')[:10]} {100 * flag['change']:+.1f} % {flag['kind']}  {what}")
    return "\n".join(lines)


def _policy_path(project: str) -> str:
    return f"/api/v1/projects/{urllib.parse.quote(project)}/policy"


def _problem(error: urllib.error.HTTPError) -> str:
    try:
        said = json.load(error)
        detail = said.get("detail") or said.get("title")
    except (ValueError, AttributeError, http.client.HTTPException):
        detail = error.reason
    return f"{error.code}: {detail}"


def _readable(path: Path) -> bool:
    return os.access(path, os.R_OK)
