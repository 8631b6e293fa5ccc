"""`tidemark.toml` of a repository under test: what to run for a commit, where, and which paths matter. Pure.

Every problem is found and told at once, with the key, the value and what is accepted.
"""

import difflib
import logging
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from backend.regression.policy import PolicyError, parse_overrides
from backend.services.base.errors import shown
from backend.services.repository import schedule_manifest
from backend.services.repository.mirror import MORE_PATHS
from backend.services.repository.schedule_manifest import Schedule

log = logging.getLogger(__name__)

FILE_NAME = "tidemark.toml"
MAX_BYTES = 64 * 1024
MAX_SUITES = 100
MAX_PROBLEMS = 50
MAX_NESTING = 16
MAX_INTEGER = 2**63  # as TOML says
MAX_PATTERN = 500
MAX_WILDCARDS = 20
MAX_STEPS = 5_000_000
PRESETS = ("cpu", "smoke", "full")
NETWORKS = ("none", "setup", "always")
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
        told = [problem.replace("\x00", "\ufffd") for problem in problems[:MAX_PROBLEMS]]
        if len(problems) > MAX_PROBLEMS:
            told.append(f"{FILE_NAME}: and {len(problems) - MAX_PROBLEMS} more")
        super().__init__("\n".join(told))
        self.problems = tuple(told)


class Effort:
    """How much comparing of paths with patterns one commit may cost, in steps of some 100 ns."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise ManifestInvalid(
                [f"{FILE_NAME}: comparing its patterns with what the commit changed takes too long; use fewer"]
            )


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
    network: str = "none"
    """When its commands need the network; the operator of a worker has the last word."""
    env: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """The spec for the worker: everything except where and when."""
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
            **({} if self.network == "none" else {"network": self.network}),
            "env": dict(self.env),
            "policy": dict(self.policy),
        }

    def matters(self, changed_paths: Iterable[str], effort: Effort | None = None) -> bool:
        """Whether a commit that changed these paths can have changed what this suite measures; raises ManifestInvalid
        when finding out costs more than it may."""
        effort = effort or Effort()
        return any(path == MORE_PATHS or _counts(path, self.paths, effort) for path in changed_paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A whole tidemark.toml. `branches` are further branches whose commits are benchmarked, as patterns."""

    suites: tuple[Suite, ...]
    policy: Mapping[str, Any] = field(default_factory=dict)
    branches: tuple[str, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Whose a benchmark is, by pattern."""

    def wants_branch(self, name: str, effort: Effort | None = None) -> bool:
        effort = effort or Effort()
        return any(_pattern(pattern).fullmatch(name, effort) for pattern in self.branches)

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
    """The manifest in this text; raises `ManifestInvalid` with every problem, and nothing else: it is a stranger's."""
    try:
        return _parse(text)
    except ManifestInvalid:
        raise
    except Exception as failure:
        log.exception("a tidemark.toml that nobody foresaw")
        raise ManifestInvalid([f"{FILE_NAME}: cannot be followed ({type(failure).__name__})"]) from None


def _parse(text: str | bytes) -> Manifest:
    document = _document(text)
    reader = _Reader()
    table = reader.known("", document, ("suite", "policy", "branches", "schedule", "owners"))
    suites = tuple(_suites(reader, table.get("suite", {})))
    schedules = schedule_manifest.read(table.get("schedule"), [suite.name for suite in suites], reader.wrong)
    manifest = Manifest(
        suites=suites,
        policy=reader.policy("policy", table.get("policy")),
        branches=reader.patterns(
            "branches", table.get("branches"), "a list of branch names or patterns, like release/*"
        ),
        schedules=schedules,
        owners=reader.owners("owners", table.get("owners")),
    )
    if reader.problems:
        raise ManifestInvalid(reader.problems)
    return manifest


def _document(text: str | bytes) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        raise ManifestInvalid([f"{FILE_NAME}: has {len(text)} bytes; at most {MAX_BYTES} are accepted"])
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        _refuse_long_names(decoded)
        document = tomllib.loads(decoded)
    except UnicodeDecodeError as error:
        raise ManifestInvalid([f"{FILE_NAME}: is not UTF-8 (byte {error.start})"]) from None
    except tomllib.TOMLDecodeError as error:
        raise ManifestInvalid([f"{FILE_NAME}: is not TOML: {error}"]) from None
    except RecursionError:
        raise ManifestInvalid(
            [f"{FILE_NAME}: is nested too deeply; at most {MAX_NESTING} levels are accepted"]
        ) from None
    except ValueError:
        raise ManifestInvalid([f"{FILE_NAME}: a number has too many digits; at most 64 bits are accepted"]) from None
    _refuse_extremes(document)
    return document


_TOKEN = re.compile(r"""(?P<part>[\w-]+|"[^"\n]*"|'[^'\n]*')|(?P<dot>\.)|(?P<space>[ \t]+)|.""", re.DOTALL)


def _refuse_long_names(text: str) -> None:
    """Reading `a.a.a…` takes time with the square of its length."""
    dots = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        dots = 0 if kind is None else dots + (kind == "dot")
        if dots > MAX_NESTING:
            raise ManifestInvalid(
                [f"{FILE_NAME}: a name with more than {MAX_NESTING} dots; at most {MAX_NESTING} levels are accepted"]
            )


def _refuse_extremes(document: dict[str, Any]) -> None:
    """Refuse values that TOML allows and neither a database nor a message can hold."""
    level: list[Any] = [document]
    for _ in range(MAX_NESTING):
        below: list[Any] = []
        for table in level:
            below += table.values() if isinstance(table, dict) else table
            if isinstance(table, dict) and any(len(key) > 200 or not key.isprintable() for key in table):
                raise ManifestInvalid([f"{FILE_NAME}: a name is longer than 200 characters or not printable"])
        if any(isinstance(value, int) and not -MAX_INTEGER <= value < MAX_INTEGER for value in below):
            raise ManifestInvalid([f"{FILE_NAME}: a number has too many digits; at most 64 bits are accepted"])
        level = [value for value in below if isinstance(value, dict | list)]
        if not level:
            return
    raise ManifestInvalid([f"{FILE_NAME}: is nested too deeply; at most {MAX_NESTING} levels are accepted"])


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
    "network",
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
        "network": reader.choice(f"{where}.network", table.get("network", "none"), NETWORKS),
        "env": reader.env(f"{where}.env", table.get("env", {})),
        "policy": reader.policy(f"{where}.policy", table.get("policy")),
    }
    if "testbeds" in table:
        accepted = "a list of at least one testbed's name"
        suite["testbeds"] = reader.texts(f"{where}.testbeds", table["testbeds"], accepted, NAME, empty=False)
    if "paths" in table:
        accepted = "a list of at least one pattern, like src/** or !src/docs/**"
        suite["paths"] = reader.patterns(f"{where}.paths", table["paths"], accepted, empty=False)
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

    def patterns(self, key: str, value: Any, accepted: str, *, empty: bool = True) -> tuple[str, ...]:
        found = self.texts(key, value, accepted, empty=empty)
        for pattern in found:
            if len(pattern) > MAX_PATTERN or pattern.count("*") + pattern.count("?") > MAX_WILDCARDS:
                self.wrong(key, pattern, f"patterns of at most {MAX_PATTERN} characters with {MAX_WILDCARDS} wildcards")
                return ()
        return found

    def owners(self, key: str, value: Any) -> dict[str, tuple[str, ...]]:
        accepted = 'names of owners by pattern of benchmark, like "moe.*" = ["@northsea/moe"]'
        table = {} if value is None else value
        if not isinstance(table, dict) or not all(BENCHMARK.match(pattern) for pattern in table):
            self.wrong(key, value, accepted)
            return {}
        return {pattern: self.texts(f"{key}.{pattern}", names, accepted) for pattern, names in table.items()}

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


def _counts(path: str, patterns: Sequence[str], effort: Effort) -> bool:
    """As in CI systems: the last pattern that matches decides; one that begins with `!` takes out. What means all below
    a directory also means the name of that: of a submodule, nothing else changes."""
    counts = False
    for pattern in patterns:
        takes_out = pattern.startswith("!")
        is_of_directory = not takes_out and pattern.endswith(("/", "**"))
        compared = f"{path}/" if is_of_directory else path
        if counts == takes_out and _pattern(pattern.removeprefix("!")).fullmatch(compared, effort):
            counts = not takes_out
    return counts


class _Pattern:
    """A path pattern, read once. Matched piece by piece over the set of places that can be reached: a pattern comes
    from a commit, and a regular expression would take for ever over some of them."""

    def __init__(self, pattern: str) -> None:
        pattern = pattern.removeprefix("./").lstrip("/")
        self._pieces = re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", f"{pattern}**" if pattern.endswith("/") else pattern)

    def fullmatch(self, path: str, effort: Effort) -> bool:
        places = {0}
        for piece in self._pieces:
            before = len(places)
            places = _after(piece, path, places)
            effort.spend(1 + before + len(places))
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
