"""`tidemark.toml` of a repository under test: what to run for a commit, where, and which paths matter. Pure.

Every problem is found and told at once, with the key, the value and what is accepted.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from backend.regression.policy import PolicyError, parse_overrides
from backend.services.base.errors import shown
from backend.services.repository import schedule_manifest
from backend.services.repository.schedule_manifest import Schedule

FILE_NAME = "tidemark.toml"
MAX_BYTES = 256 * 1024
MAX_SUITES = 100
PRESETS = ("cpu", "smoke", "full")
DEFAULT_TIMEOUT_S = 1800
MAX_TIMEOUT_S = 24 * 3600
# Without `paths`, every commit counts that touches more than what only people read.
DEFAULT_PATHS = ("**", "!**/*.md", "!**/*.rst", "!docs/**", "!LICENSE*", "!.github/**/*.md")

NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._+-]{0,99}\Z")
BENCHMARK = re.compile(r"[0-9A-Za-z_*?\[\]][0-9A-Za-z_.*?\[\]+:/-]{0,199}\Z")
IMPLEMENTATION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
VARIANT = re.compile(r"[0-9A-Za-z_.-]+=[^=,\x00-\x1f][^\x00-\x1f]*\Z")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")


class ManifestInvalid(ValueError):
    """A tidemark.toml that cannot be followed; `problems` has a sentence for each thing that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One `[suite.NAME]` table."""

    name: str
    benchmarks: tuple[str, ...] = ()
    command: str | None = None
    preset: str = "full"
    implementation: str | None = None
    variants: tuple[str, ...] = ()
    setup: str | None = None
    timeout_s: int = DEFAULT_TIMEOUT_S
    testbeds: tuple[str, ...] = ("cpu",)
    paths: tuple[str, ...] = DEFAULT_PATHS
    processes: int | None = None
    ranks: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """What the worker is told: everything except where and when."""
        return {
            "suite": self.name,
            "benchmarks": list(self.benchmarks),
            "command": self.command,
            "preset": self.preset,
            "implementation": self.implementation,
            "variants": list(self.variants),
            "setup": self.setup,
            "timeout_s": self.timeout_s,
            "processes": self.processes,
            "ranks": self.ranks,
            "env": dict(self.env),
            "policy": dict(self.policy),
        }

    def matters(self, changed_paths: Iterable[str]) -> bool:
        """Whether a commit that changed these paths can have changed what this suite measures."""
        return any(_counts(path, self.paths) for path in changed_paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A whole tidemark.toml. `branches` are further branches whose commits are benchmarked, as patterns."""

    suites: tuple[Suite, ...]
    policy: Mapping[str, Any] = field(default_factory=dict)
    branches: tuple[str, ...] = ()
    schedules: tuple[Schedule, ...] = ()

    def wants_branch(self, name: str) -> bool:
        return any(_pattern(pattern).fullmatch(name) for pattern in self.branches)

    def policy_table(self) -> dict[str, Any]:
        """The policy of the whole project, with each suite's own as overrides for that suite."""
        table = {name: value for name, value in self.policy.items() if name != "override"}
        overrides = [dict(entry) for entry in self.policy.get("override", [])]
        for suite in self.suites:
            own = {name: value for name, value in suite.policy.items() if name != "override"}
            scoped = [dict(entry) for entry in suite.policy.get("override", [])]
            overrides += [{**entry, "suite": suite.name} for entry in ([own] if own else []) + scoped]
        return {**table, **({"override": overrides} if overrides else {})}


def parse(text: str | bytes) -> Manifest:
    """The manifest in this text; raises `ManifestInvalid` with every problem."""
    document = _document(text)
    reader = _Reader()
    table = reader.known("", document, ("suite", "policy", "branches", "schedule"))
    suites = tuple(_suites(reader, table.get("suite", {})))
    schedules = schedule_manifest.read(table.get("schedule"), [suite.name for suite in suites], reader.wrong)
    manifest = Manifest(
        suites=suites,
        policy=reader.policy("policy", table.get("policy")),
        branches=reader.texts("branches", table.get("branches"), "a list of branch names or patterns, like release/*"),
        schedules=schedules,
    )
    if reader.problems:
        raise ManifestInvalid(reader.problems)
    return manifest


def _document(text: str | bytes) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        raise ManifestInvalid([f"{FILE_NAME}: has {len(text)} bytes; at most {MAX_BYTES} are accepted"])
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        return tomllib.loads(decoded)
    except UnicodeDecodeError as error:
        raise ManifestInvalid([f"{FILE_NAME}: is not UTF-8 (byte {error.start})"]) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ManifestInvalid([f"{FILE_NAME}: is not TOML: {error}"]) from None


def _suites(reader: "_Reader", tables: Any) -> Iterable[Suite]:
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        reader.wrong("suite", tables, "tables such as [suite.gpt]")
        return
    if len(tables) > MAX_SUITES:
        reader.wrong("suite", f"{len(tables)} tables", f"at most {MAX_SUITES}")
        return
    for name, table in tables.items():
        if not NAME.match(name):
            reader.wrong("suite", name, "a name of letters, digits and . _ - +, beginning with a letter or digit")
            continue
        suite = _suite(reader, name, table)
        if suite is not None:
            yield suite


SUITE_KEYS = (
    "benchmarks",
    "command",
    "preset",
    "implementation",
    "variants",
    "setup",
    "timeout_s",
    "testbeds",
    "paths",
    "processes",
    "ranks",
    "env",
    "policy",
)


def _suite(reader: "_Reader", name: str, raw: dict[str, Any]) -> Suite | None:
    where = f"suite.{name}"
    before = len(reader.problems)
    table = reader.known(where, raw, SUITE_KEYS)
    benchmarks = reader.texts(
        f"{where}.benchmarks", table.get("benchmarks"), "a list of benchmark ids or patterns, like gpt.*", BENCHMARK
    )
    command = reader.text(f"{where}.command", table.get("command"), "a command line")
    if bool(benchmarks) == bool(command) and before == len(reader.problems):
        both = "both" if benchmarks else "neither"
        reader.wrong(where, both, "either `benchmarks` (registered ones) or `command` (your own)", has=True)
    for key in ("implementation", "variants", "processes", "preset"):
        if command and key in table:
            reader.wrong(
                f"{where}.{key}", table[key], "nothing: it belongs to `benchmarks`, and this suite has `command`"
            )
    suite: dict[str, Any] = {
        "preset": reader.choice(f"{where}.preset", table.get("preset", "full"), PRESETS),
        "implementation": reader.text(
            f"{where}.implementation",
            table.get("implementation"),
            "module:attribute, like loom.moe:layer",
            IMPLEMENTATION,
        ),
        "variants": reader.texts(f"{where}.variants", table.get("variants"), "a list of parameter=value", VARIANT),
        "setup": reader.text(f"{where}.setup", table.get("setup"), "a command line"),
        "timeout_s": reader.whole(f"{where}.timeout_s", table.get("timeout_s", DEFAULT_TIMEOUT_S), 1, MAX_TIMEOUT_S),
        "processes": None
        if "processes" not in table
        else reader.whole(f"{where}.processes", table["processes"], 1, 100),
        "ranks": None if "ranks" not in table else reader.whole(f"{where}.ranks", table["ranks"], 1, 1024),
        "env": reader.env(f"{where}.env", table.get("env", {})),
        "policy": reader.policy(f"{where}.policy", table.get("policy")),
    }
    if "testbeds" in table:
        accepted = "a list of at least one testbed's name"
        suite["testbeds"] = reader.texts(f"{where}.testbeds", table["testbeds"], accepted, NAME, empty=False)
    if "paths" in table:
        accepted = "a list of at least one pattern, like src/** or !src/docs/**"
        suite["paths"] = reader.texts(f"{where}.paths", table["paths"], accepted, empty=False)
    if len(reader.problems) > before:
        return None
    return Suite(name=name, benchmarks=benchmarks, command=command, **suite)


class _Reader:
    """Reads values and collects what is wrong, so that an author mends the file once."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def wrong(self, key: str, value: object, accepted: str, *, has: bool = False) -> None:
        verb = "has" if has else "is"
        self.problems.append(f"{FILE_NAME}: {key} {verb} {value if has else shown(value)}; accepted: {accepted}")

    def known(self, where: str, table: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
        """The entries with known keys; the others are problems, with the likeliest intention."""
        for key in table.keys() - set(keys):
            close = difflib.get_close_matches(key, keys, 1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            place = f"{where}.{key}" if where else key
            self.problems.append(f"{FILE_NAME}: unknown key {place}{meant}; known: {', '.join(keys)}")
        self.problems.sort()
        return {key: value for key, value in table.items() if key in keys}

    def text(self, key: str, value: Any, accepted: str, pattern: re.Pattern[str] | None = None) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not _usable(value) or (pattern and not pattern.match(value)):
            self.wrong(key, value, accepted)
            return None
        return value

    def texts(
        self, key: str, value: Any, accepted: str, pattern: re.Pattern[str] | None = None, *, empty: bool = True
    ) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or not (value or empty) or len(value) > 1000:
            self.wrong(key, value, accepted)
            return ()
        for item in value:
            if not isinstance(item, str) or not _usable(item) or (pattern and not pattern.match(item)):
                self.wrong(key, item, accepted)
                return ()
        return tuple(dict.fromkeys(value))

    def whole(self, key: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.wrong(key, value, f"a whole number from {low} to {high}")
            return low
        return value

    def choice(self, key: str, value: Any, choices: Sequence[str]) -> str:
        if value not in choices:
            self.wrong(key, value, ", ".join(choices))
            return choices[0]
        return str(value)

    def env(self, key: str, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            self.wrong(key, value, 'a table of variables, like [suite.gpt.env] OMP_NUM_THREADS = "2"')
            return {}
        for name, text in value.items():
            if not ENV_NAME.match(name):
                self.wrong(f"{key}.{name}", name, "a variable name of letters, digits and _")
            elif name.upper().startswith("TIDEMARK_"):
                self.wrong(f"{key}.{name}", name, "a name that does not begin with TIDEMARK_, which are ours")
            elif not isinstance(text, str) or "\x00" in text or len(text) > 10_000:
                self.wrong(f"{key}.{name}", text, "text (numbers in quotes)")
        return dict(value)

    def policy(self, key: str, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.wrong(key, value, "a table of thresholds")
            return {}
        try:
            parse_overrides(value, key)
        except PolicyError as error:
            self.problems.append(f"{FILE_NAME}: {error}")
        return value


def _usable(text: str) -> bool:
    """Not empty, not absurdly long, and nothing that neither a shell nor a database would take."""
    return bool(text.strip()) and len(text) <= 10_000 and "\x00" not in text


# --- path patterns ---------------------------------------------------------------------------------------------------


def _counts(path: str, patterns: Sequence[str]) -> bool:
    """As in CI systems: the last pattern that matches decides; one that begins with `!` takes out."""
    counts = False
    for pattern in patterns:
        takes_out = pattern.startswith("!")
        if counts == takes_out and _pattern(pattern.removeprefix("!")).fullmatch(path):
            counts = not takes_out
    return counts


class _Pattern:
    """A path pattern, read once. Matched piece by piece over the set of places that can be reached: a pattern comes
    from a commit, and a regular expression would take for ever over some of them."""

    def __init__(self, pattern: str) -> None:
        pattern = pattern.removeprefix("./").lstrip("/")
        self._pieces = re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", f"{pattern}**" if pattern.endswith("/") else pattern)

    def fullmatch(self, path: str) -> bool:
        places = {0}
        for piece in self._pieces:
            places = _after(piece, path, places)
            if not places:
                return False
        return len(path) in places


def _after(piece: str, path: str, places: set[int]) -> set[int]:
    """Where in the path a match can stand after this piece, if it can stand at `places` before it."""
    match piece:
        case "**":
            return set(range(min(places), len(path) + 1))
        case "**/" | "*":  # whole directories, or characters of one name
            reached: set[int] = set()
            for start in places:
                at = start
                while at not in reached:
                    reached.add(at)
                    end = path.find("/", at) if piece == "**/" else at
                    if at <= end < len(path) and path[at] != "/":
                        at = end + 1
            return reached
        case "?":
            return {at + 1 for at in places if at < len(path) and path[at] != "/"}
        case _:
            return {at + len(piece) for at in places if path.startswith(piece, at)}


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> _Pattern:
    """`*` and `?` stay within one directory, `**` crosses them; `dir/` means everything below."""
    return _Pattern(pattern)
