"""What a migration may do while the version before it is at work: the rules of docs/operations.md, asked of squawk.

Squawk knows what PostgreSQL locks and rewrites. Of its rules those are asked that matter here, the ones about locks
held for as long as a table is large only of the tables that grow without end.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

GROWS = (
    "measurement",
    "judgement",
    "result",
    "run",
    "series",
    "rollup",
    "regression_event",
    "run_event",
    "live_event",
    "commit",
)

# The code of the version before reads and writes on: what it knows must stay where and as it is.
FOR_ALL = {
    "adding-field-with-default", "adding-not-nullable-field", "adding-required-field", "ban-char-field",
    "ban-drop-column", "ban-drop-database", "ban-drop-table", "ban-truncate-cascade", "changing-column-type",
    "prefer-timestamp-tz", "renaming-column", "renaming-table", "syntax-error",
}  # fmt: skip
# Time that grows with the table, while writing waits.
FOR_WHAT_GROWS = {
    "adding-foreign-key-constraint", "adding-serial-primary-key-field", "constraint-missing-not-valid",
    "disallowed-unique-constraint", "require-concurrent-index-creation",
}  # fmt: skip
WHOLE_TABLE = re.compile(r"^\s*(?:UPDATE|DELETE\s+FROM)\s+(?:ONLY\s+)?\"?(\w+)\"?", re.IGNORECASE)


def broken(statements: Sequence[str]) -> list[tuple[str, str]]:
    """(rule, statement) for each rule that these statements of one migration break.

    Statements about tables that the same migration makes break none: nobody uses those yet.
    """
    found = []
    sql = [re.sub(r"\s+", " ", statement).strip().rstrip(";") for statement in statements]
    for line, rule in _squawk(sql):
        if rule in FOR_ALL or (rule in FOR_WHAT_GROWS and _table_of(sql[line]) in GROWS):
            found.append((rule, sql[line]))
    found += [
        ("whole-table-write", statement)
        for statement in sql
        if (match := WHOLE_TABLE.match(statement)) and match.group(1).lower() in GROWS
    ]
    return found


def _squawk(sql: Sequence[str]) -> list[tuple[int, str]]:
    """(which statement, rule); a statement is a line."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("squawk"),
            "--reporter=json",
            "--stdin-filepath=migration.sql",
            "--pg-version=15.0",
        ],
        input="".join(f"{statement};\n" for statement in sql),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (0, 1), done.stderr
    return [(told["line"], told["rule_name"]) for told in json.loads(done.stdout)]


def _table_of(statement: str) -> str:
    match = re.search(
        r"(?:\bON|ALTER TABLE)\s+(?:ONLY\s+)?(?:IF EXISTS\s+)?(?:public\.)?\"?(\w+)\"?", statement, re.IGNORECASE
    )
    return match.group(1).lower() if match else ""
