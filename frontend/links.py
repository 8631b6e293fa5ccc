"""Addresses of pages. The URL is the state: every control is a link that changes one parameter and keeps the rest."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus, urlencode

# Parameters that name where one is; they follow the reader from page to page.
PLACE = ("project", "testbed", "branch", "suite", "dtype", "mode", "backend", "metric", "theme")

# What holds for one look only: a cursor belongs to the filters it was made with, a deed is told once.
FLEETING = frozenset({"cursor", "done", "refused"})

Value = str | int | float | bool | None | Iterable[str]


def link(path: str, **parameters: Value) -> str:
    """`path` with those parameters that have a value, in the order given."""
    pairs: list[tuple[str, str]] = []
    for name, value in parameters.items():
        if value is None or value == "" or value is False:
            continue
        if isinstance(value, str):
            pairs.append((name, value))
        elif isinstance(value, bool):
            pairs.append((name, "1"))
        elif isinstance(value, int | float):
            pairs.append((name, str(value)))
        else:
            pairs += [(name, item) for item in value]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def links_to(path: str, name: str, values: Iterable[str]) -> list[str]:
    """`link` for each of many values of one parameter."""
    begin = f"{path}?{name}="
    return [begin + (value if value.isascii() and value.isalnum() else quote_plus(value)) for value in values]


class Here:
    """The address being shown. `here(range="30d")` is the same page with one thing changed."""

    def __init__(self, path: str, query: Iterable[tuple[str, str]]) -> None:
        self.path = path
        self.pairs = [(name, value) for name, value in query if value != ""]

    def get(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.pairs if key == name), default)

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.pairs if key == name)

    def __call__(self, **changes: Value) -> str:
        """This page with parameters changed (None: removed), without what was fleeting."""
        gone = set(changes) | FLEETING
        kept = [(name, value) for name, value in self.pairs if name not in gone]
        changed = link("", **changes).lstrip("?")
        query = "&".join(part for part in (urlencode(kept), changed) if part)
        return f"{self.path}?{query}" if query else self.path

    def file(self, ending: str) -> str:
        """The address of this page's list as a file."""
        path, _, query = self().partition("?")
        return f"{path}.{ending}?{query}" if query else f"{path}.{ending}"

    def hidden(self, *without: str) -> list[tuple[str, str]]:
        """The other parameters, as hidden fields of a GET form that sets `without`."""
        return [(name, value) for name, value in self.pairs if name not in without and name not in FLEETING]

    def page(self, path: str, **parameters: Value) -> str:
        """Another page, in the same place."""
        place: dict[str, Value] = {name: self.all(name) for name in PLACE}
        return link(path, **(place | dict(parameters)))


def commit_url(repository_url: str | None, sha: str) -> str | None:
    """The commit at its host, where the repository has a web address."""
    base = web_address(repository_url)
    return f"{base}/commit/{quote(sha)}" if base else None


def pull_request_url(repository_url: str | None, number: int) -> str | None:
    base = web_address(repository_url)
    return f"{base}/pull/{number}" if base else None


def diff_url(repository_url: str | None, base_sha: str, head_sha: str) -> str | None:
    base = web_address(repository_url)
    return f"{base}/compare/{quote(base_sha)}...{quote(head_sha)}" if base else None


def web_address(repository_url: str | None) -> str | None:
    """https address of a repository, or None: a `file:` or `javascript:` URL never becomes a link."""
    if not repository_url or not repository_url.startswith(("https://", "http://")):
        return None
    return repository_url.removesuffix("/").removesuffix(".git")


SHOWN_OF_PARAMETER = 60


def series_name(benchmark: str, variant: Mapping[str, object]) -> str:
    """moe.layer experts=64, dtype=bf16. Long texts are cut; their page has them whole."""
    values = ", ".join(f"{name}={_cut(str(value))}" for name, value in variant.items())
    return f"{benchmark} {values}" if values else benchmark


def long_parameters(variant: Mapping[str, object]) -> dict[str, str]:
    """The parameters that `series_name` cuts, whole."""
    return {name: str(value) for name, value in variant.items() if len(str(value)) > SHOWN_OF_PARAMETER}


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_OF_PARAMETER else f"{text[: SHOWN_OF_PARAMETER - 1]}…"
