"""Is GitHub set up? The webhook's secret, and whether GitHub knows the app or the token, with the rights they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from backend.github.client import GitHub, GitHubError, Later, PlainToken, about_app
from tidemark.checkup.finding import Finding
from tidemark.settings import Settings, app_key

LEAST_SECRET = 16
# What each is for, so that somebody may decide to do without it.
NEEDED: Mapping[str, tuple[str, str]] = {
    "checks": ("write", "check runs"),
    "pull_requests": ("write", "comments on pull requests"),
    "issues": ("write", "issues of regressions, answers to comments"),
    "contents": ("read", "reading the repository"),
    "metadata": ("read", "who may write to it"),
}
LEVELS = ("read", "write", "admin")


def github(settings: Settings) -> Iterator[Finding]:
    """Nothing is found where nothing is configured: Tidemark does without GitHub."""
    secret = settings.github_webhook_secret
    speaks = settings.github_app_id is not None or settings.github_token is not None
    if secret is None and not speaks:
        return
    yield Finding(
        name="github webhook",
        good=secret is not None and len(secret) >= LEAST_SECRET,
        found="no secret, so every delivery is refused" if secret is None else f"a secret of {len(secret)} characters",
        mend=f"set TIDEMARK_GITHUB_WEBHOOK_SECRET to {LEAST_SECRET} or more random characters, here and at the webhook",
    )
    if settings.github_app_id is not None:
        yield _app(settings, settings.github_app_id)
    elif settings.github_token is not None:
        yield _token(settings, settings.github_token)
    else:
        yield Finding(
            name="github answers", good=True, found="neither app nor token: nothing is sent to GitHub, which is fine"
        )


def _app(settings: Settings, app_id: str) -> Finding:
    mend = "compare TIDEMARK_GITHUB_APP_ID with the app's settings, and make a new private key there if in doubt"
    try:
        told = about_app(app_id, app_key(settings) or "", api_url=settings.github_api_url)
    except Later as error:
        return Finding(name="github app", good=False, found=str(error), mend="is the way to GitHub open from here?")
    except (GitHubError, ValueError) as error:
        return Finding(name="github app", good=False, found=str(error), mend=mend)
    lacks = [
        f"{name}: {level} ({purpose})"
        for name, (level, purpose) in NEEDED.items()
        if _level(told.permissions.get(name)) < _level(level)
    ]
    return Finding(
        name="github app",
        good=not lacks,
        found=f"GitHub knows it as {told.name!r}" + (f"; it lacks {', '.join(lacks)}" if lacks else ""),
        mend="add the permissions in the app's settings, then accept them where it is installed",
    )


def _token(settings: Settings, token: str) -> Finding:
    api = GitHub(PlainToken(token), api_url=settings.github_api_url)
    try:
        api.request("GET", "/rate_limit")
    except Later as error:
        return Finding(name="github token", good=False, found=str(error), mend="is the way to GitHub open from here?")
    except GitHubError as error:
        return Finding(name="github token", good=False, found=str(error), mend="make a new one; TIDEMARK_GITHUB_TOKEN")
    finally:
        api.close()
    return Finding(name="github token", good=True, found="GitHub knows it; without an app a commit status is set")


def _level(word: str | None) -> int:
    return LEVELS.index(word) if word in LEVELS else -1
