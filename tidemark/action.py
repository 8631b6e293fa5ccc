"""The step of the GitHub Action: deliver a results file, say the verdict, fail by policy. Standard library only.

Everything comes in by variables, as `action.yml` sets them. Running it again delivers nothing twice.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark.client import ApiError, Client, Unreachable

WORST_FIRST = ("regression", "suspect", "improvement", "unsteady", "unchanged", "insufficient")
FAILS: Mapping[str, frozenset[str]] = {
    "regression": frozenset({"regression"}),
    "suspect": frozenset({"regression", "suspect"}),
    "never": frozenset(),
}
MAX_ROWS = 50
MARKUP = re.compile(r"[^\w\s=,.-]|(?<=www)\.", re.IGNORECASE)
TIMEOUT_S = 30.0


class Wrong(Exception):
    """Something the workflow's author can mend; one line."""


def main(environment: Mapping[str, str] | None = None) -> int:
    """The exit status: 0 good, 1 the policy says fail, 2 it could not be delivered."""
    given = os.environ if environment is None else environment
    try:
        return _submit(given)
    except (Wrong, ApiError, Unreachable) as error:
        print(f"::error title=Tidemark::{_command_text(str(error))}")
        return 2


def _submit(given: Mapping[str, str]) -> int:
    fail_on = given.get("INPUT_FAIL_ON") or "regression"
    if fail_on not in FAILS:
        raise Wrong(f"fail-on is {fail_on!r}; accepted: {', '.join(FAILS)}")
    file = Path(given.get("INPUT_FILE") or "")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise Wrong(f"cannot read the results file {str(file)!r}: {error.strerror}") from None
    url = (given.get("TIDEMARK_URL") or "").rstrip("/")
    client = Client(url, given.get("TIDEMARK_TOKEN") or oidc_token(given, url))
    answer = client.import_file(
        data,
        project=given.get("INPUT_PROJECT") or "",
        format=given.get("INPUT_FORMAT") or "auto",
        file=file.name,
        testbed=given.get("INPUT_TESTBED") or None,
        suite=given.get("INPUT_SUITE") or None,
        commit=given.get("INPUT_COMMIT") or None,
        branch=given.get("INPUT_BRANCH") or None,
        stated_wins=given.get("INPUT_STATED_WINS") == "true",
        direction=[line.strip() for line in (given.get("INPUT_DIRECTION") or "").splitlines() if line.strip()],
    )
    verdict = worst(answer)
    print(report(answer))
    _append(given.get("GITHUB_STEP_SUMMARY"), summary(answer, verdict, url))
    _append(given.get("GITHUB_OUTPUT"), outputs(answer, verdict))
    if answer["counts"]["refused"] or not answer["runs"]:
        raise Wrong(_nothing_stored(answer))
    return 1 if verdict in FAILS[fail_on] else 0


def oidc_token(given: Mapping[str, str], audience: str) -> str:
    """GitHub's token for this workflow, meant only for this service."""
    address, secret = given.get("ACTIONS_ID_TOKEN_REQUEST_URL"), given.get("ACTIONS_ID_TOKEN_REQUEST_TOKEN")
    if not address or not secret:
        raise Wrong("no token: give the job `permissions: id-token: write`, or the action the input `token`")
    request = urllib.request.Request(f"{address}&audience={urllib.parse.quote(audience, safe='')}")
    request.add_header("Authorization", f"Bearer {secret}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return str(json.load(response)["value"])
    except (OSError, ValueError, KeyError) as error:
        raise Wrong(f"GitHub gave no OIDC token: {error}") from None


def worst(answer: Mapping[str, Any]) -> str:
    """The worst verdict of all runs."""
    found = {word for run in answer["runs"] for word, count in run["summary"].items() if count}
    return next((word for word in WORST_FIRST if word in found), "insufficient")


def warnings(answer: Mapping[str, Any]) -> list[str]:
    """What the job may not have meant, each once; of many the first."""
    found = list(dict.fromkeys(warning for run in answer["runs"] for warning in run.get("warnings", ())))
    more = [f"and {len(found) - MAX_ROWS} more"] if len(found) > MAX_ROWS else []
    return [*found[:MAX_ROWS], *more]


def report(answer: Mapping[str, Any]) -> str:
    """Print the verdict to the job's log."""
    counts = answer["counts"]
    lines = [
        f"{answer['file']} ({answer['format']}): {counts['stored']} runs stored, {counts['duplicate']} there already, "
        f"{counts['refused']} refused, {counts['measurements']} measurements, {counts['problems']} records left out"
    ]
    for run in answer["runs"]:
        told = ", ".join(f"{count} {word}" for word, count in run["summary"].items()) or run["error"] or "not judged"
        lines.append(f"  {run['suite']} at {run['commit'][:10]} on {run['testbed']}: {told}")
        lines += [f"    {item['verdict']}: {item['explanation']}" for item in run["changed"][:MAX_ROWS]]
    lines += [f"  warning: {warning}" for warning in warnings(answer)]
    lines += [f"  left out: {item['where']}: {item['reason']}" for item in answer["problems"][:MAX_ROWS]]
    # "::" at the beginning of a line, and "##[" anywhere, would be a command to the runner.
    return "\n".join(line.replace("::", ": :").replace("##[", "## [") for line in lines)


def summary(answer: Mapping[str, Any], verdict: str, url: str) -> str:
    """The job summary, as Markdown."""
    changed = [item for run in answer["runs"] for item in run["changed"]]
    rows = [f"### Tidemark: {verdict}", ""]
    if changed:
        rows += ["| benchmark | metric | worse by | verdict |", "|---|---|--:|---|"]
    for item in changed[:MAX_ROWS]:
        change = "" if item["change"] is None else f"{100 * item['change']:+.1f} %"
        name = f"{item['benchmark']} {item['variant']}".strip()
        rows.append(f"| {_cell(name)} | {_cell(item['metric'])} | {change} | {item['verdict']} |")
    if not changed:
        rows.append("Nothing changed.")
    rows += [f"\nWarning: {_cell(warning)}" for warning in warnings(answer)]
    return "\n".join([*rows, "", f"[open in Tidemark]({url}/)", ""])


def outputs(answer: Mapping[str, Any], verdict: str) -> str:
    numbers = sorted({number for run in answer["runs"] for number in run["regressions"]})
    return f"verdict={verdict}\nregressions={','.join(map(str, numbers))}\nstored={answer['counts']['stored']}\n"


def _nothing_stored(answer: Mapping[str, Any]) -> str:
    reasons = [run["error"] for run in answer["runs"] if run["error"]]
    reasons += [f"{item['where']}: {item['reason']}" for item in answer["problems"]]
    return f"{answer['file']}: not all of it could be stored: {'; '.join(reasons[:3]) or 'it holds no result'}"


def _cell(text: str) -> str:
    """A stranger's text in a cell: no markup, no link, no picture, no mention."""
    return MARKUP.sub(lambda found: f"&#{ord(found[0])};", " ".join(text.split()))


def _command_text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _append(file: str | None, text: str) -> None:
    if file:
        with Path(file).open("a", encoding="utf-8") as opened:
            opened.write(text)


if __name__ == "__main__":
    sys.exit(main())
