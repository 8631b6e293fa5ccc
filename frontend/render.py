"""From a template and its context to a response: Jinja2 with autoescape, filters for numbers and times, headers.

Text of commits, logs and results only ever enters pages through autoescape or `escape`; control characters, which
browsers drop or act on, become visible marks.
"""

import gzip
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

import orjson
from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape
from starlette.routing import Match

from backend.services.base.metric_words import worse_word
from frontend import links, numbers, words
from frontend.assets import load_assets
from frontend.markup import html, made_by_template

TEMPLATES = Path(__file__).parent / "templates"
# Plotly sets styles on its elements; everything else is refused, inline scripts first of all.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; worker-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Vary": "Accept-Encoding, Cookie",
}
COMPRESS_FROM = 1024
COMPRESSION = 4  # of nine: a page of thousands of points stays under 150 kB; 5 costs a third more for 4 % less
# What programs send to a terminal to colour text or move its cursor.
CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
DASH = html('<span class="dim">–</span>')
UNSAFE_IN_SCRIPTS = tuple((text.encode(), f"\\u{ord(text):04x}".encode()) for text in ("<", "\u2028", "\u2029"))
# Text without any of these is written as it is: nearly every text of a page, and one look is cheaper than two passes.
SPECIAL = re.compile(f"[&<>\"'{CONTROL.pattern[1:-1]}]")


def visible(text: object) -> str:
    """Control characters and direction overrides as marks one can see: a commit message must not rearrange the page."""
    return CONTROL.sub(lambda found: chr(0x2400 + ord(found[0])) if ord(found[0]) < 0x20 else "␦", str(text))


def plain(text: object) -> Markup:
    """Foreign text: escaped, control characters shown, its direction kept to itself."""
    return html("<bdi>{}</bdi>", visible(text))


def when(moment: datetime | None, form: str = "stamp", now: datetime | None = None) -> Markup:
    """A `<time>`: an `age`, or a `stamp`, a `day` or a `clock` in UTC as rendered; scripts keep ages fresh and put the
    others into the reader's zone."""
    if moment is None:
        return DASH
    utc = moment.astimezone(UTC)
    written = {"day": numbers.day, "clock": numbers.clock, "stamp": numbers.stamp}
    text = numbers.age(moment, now or datetime.now(UTC)) if form == "age" else written[form](utc)
    return html(
        '<time datetime="{:%Y-%m-%dT%H:%M:%SZ}" title="{}" data-form="{}">{}</time>',
        utc,
        numbers.exact_stamp(utc),
        form,
        text,
    )


def tag(look: tuple[str, str], text: str) -> Markup:
    """A verdict tag: glyph and word, never colour alone."""
    css, glyph = look
    return html('<span class="v {}">{}{}</span>', css, f"{glyph} " if glyph else "", text)


def state_tag(state: str) -> Markup:
    return tag(words.REGRESSION_STATES.get(state, ("s", "")), state)


def verdict_tag(verdict: str) -> Markup:
    return tag(words.VERDICTS.get(verdict, ("s", "")), verdict)


def run_tag(state: str) -> Markup:
    return tag(words.RUN_STATES.get(state, ("s", "")), state.replace("_", " "))


def change_mark(change: float | None, *, firm: bool = True) -> Markup:
    """▼ 7.4 % or ▲ 6.0 %: a cost change with the triangle that says where performance went; 0.0 % went nowhere."""
    if change is None:
        return DASH
    said = numbers.cost_change(change)
    css = "mut" if not firm or said[0] not in "▼▲" else "bad" if change > 0 else "good"
    return html('<span class="{} nw">{}</span>', css, said)


class CompiledTemplates(FileSystemBytecodeCache):
    """Templates as Python's bytecode, kept where Python keeps that of our modules, if it may be written there."""

    def __init__(self) -> None:
        # The settings of the environment, which are in this file, shape what is compiled.
        settings = sha256(Path(__file__).read_bytes()).hexdigest()[:8]
        super().__init__(str(Path(cache_from_source(__file__)).parent), f"template-{settings}-%s.cache")

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().dump_bytecode(bucket)


def compile_templates() -> None:
    """Read and compile every template, so that no page has to at its first request."""
    for name in environment().list_templates():
        environment().get_template(name)


@cache
def environment() -> Environment:
    """The one Jinja environment. `StrictUndefined`: a misspelt name fails in a test, not silently on a page."""
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
        bytecode_cache=None if sys.dont_write_bytecode else CompiledTemplates(),
        auto_reload=False,  # a template of other code than the process runs would fail; and no file is looked at twice
    )
    env.filters |= {
        "percent": numbers.percent,
        "signed_percent": numbers.signed_percent,
        "cost_change": numbers.cost_change,
        "quantity": numbers.quantity,
        "significant": numbers.significant,
        "signed": numbers.signed,
        "count": numbers.count,
        "duration": numbers.duration,
        "rough": numbers.rough_duration,
        "short": lambda sha: str(sha)[:7],
        "plain": plain,
        "visible": visible,
        "when": when,
        "state_tag": state_tag,
        "verdict_tag": verdict_tag,
        "run_tag": run_tag,
        "change": change_mark,
        "words": lambda name: str(name).replace("_", " "),
    }
    env.globals |= {
        "asset": lambda path: load_assets().url(path),
        "link": links.link,
        "series_name": links.series_name,
        "interval": numbers.interval,
        "before_and_after": numbers.before_and_after,
        "plural": words.plural,
        "metric_note": words.metric_note,
        "look": words.LOOKS,
        "tag": tag,
        "worse_word": worse_word,
        "commit_url": links.commit_url,
        "pull_request_url": links.pull_request_url,
        "diff_url": links.diff_url,
    }
    return env


def render(template: str, context: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(**context)


def rendered(template: str, context: Mapping[str, Any]) -> Markup:
    """A piece of a page."""
    return made_by_template(render(template, context))


def script_json(content: Any) -> Markup:
    """A data block for a script; `<` cannot end it early."""
    data = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    for character, written in UNSAFE_IN_SCRIPTS:
        data = data.replace(character, written)
    return made_by_template(data.decode())


def html_response(request: Request, html: str, status: int = 200) -> HTMLResponse:
    """The page with its headers, compressed when the browser can."""
    headers, body = dict(HEADERS), html.encode("utf-8", "replace")
    if len(body) >= COMPRESS_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, COMPRESSION, mtime=0)
        headers["Content-Encoding"] = "gzip"
    response = HTMLResponse(content="", status_code=status, headers=headers)
    response.body = body
    response.headers["Content-Length"] = str(len(body))
    return response


# --- a form that was refused -----------------------------------------------------------------------------------------

REFUSED_COOKIE, REFUSED_MOST, REFUSED_SECONDS = "tidemark_refused", 300, 60
SHOWN_AFTER_REDIRECT = {400, 404, 409, 422, 503}


class RefusedForm(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def detail(self) -> str: ...


def way_back(request: Request, problem: RefusedForm) -> Response | None:
    """Back to the page with the form, if a browser sent it; None: the caller is not a browser, or came from
    elsewhere. A cookie carries the message, because a text in an address could be written by anyone."""
    from_page = urlsplit(request.headers.get("referer", ""))
    is_form = request.method == "POST" and request.headers.get("sec-fetch-mode") == "navigate"
    is_ours = from_page.netloc == request.headers.get("host") and _is_page(request, from_page.path)
    if not (is_form and is_ours and problem.status in SHOWN_AFTER_REDIRECT):
        return None
    response = RedirectResponse(from_page._replace(scheme="", netloc="").geturl(), status_code=303)
    words = quote(problem.detail[:REFUSED_MOST])
    response.set_cookie(
        REFUSED_COOKIE,
        words,
        max_age=REFUSED_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


def _is_page(request: Request, path: str) -> bool:
    """Whether an address of this service can be read, and is no answer to a form."""
    read = {**request.scope, "method": "GET", "path": path}
    return any(route.matches(read)[0] is Match.FULL for route in request.app.routes)


def refusal_of(request: Request) -> str:
    """The words that the page before was refused with; empty: it was not."""
    return unquote(request.cookies.get(REFUSED_COOKIE, ""))[:REFUSED_MOST]


def forget(response: Response) -> None:
    response.delete_cookie(REFUSED_COOKIE, httponly=True, samesite="strict")


# ---------------------------------------------------------------------------------------------------------------------


def cell_escape(text: str) -> str:
    """For the grid, which is written as strings: escaped, control characters shown."""
    return str(escape(visible(text))) if SPECIAL.search(text) else text
