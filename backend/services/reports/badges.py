"""The badge of a project: one small picture for a README that says whether it is slower than it was."""

from dataclasses import dataclass
from html import escape

from sqlalchemy import Connection

from backend.services.base.projects import find_project
from backend.store.reports import badges as store
from backend.store.reports.badges import BadgeStatus

LABEL = "speed"
GREY, GREEN, AMBER, RED = "#6b7280", "#15803d", "#b45309", "#b91c1c"
CHARACTER_PX, PADDING_PX, HEIGHT_PX = 6.6, 8, 20
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" aria-label="{title}">'
    "<title>{title}</title>"
    '<rect width="{width}" height="{height}" rx="3" fill="{colour}"/>'
    '<path d="M3 0h{inner}v{height}H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#374151"/>'
    '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
    '<text x="{label_x}" y="14">{label}</text><text x="{message_x}" y="14">{message}</text></g></svg>'
)


@dataclass(frozen=True, slots=True)
class Badge:
    message: str
    colour: str


def project_badge(c: Connection, slug: str) -> str:
    """The badge of a project as SVG."""
    project = find_project(c, slug)
    return draw(LABEL, badge_of(store.badge_status(c, project.id)))


def badge_of(standing: BadgeStatus) -> Badge:
    """The badge for the worst that is known."""
    if standing.open_regressions:
        return Badge(_counted(standing.open_regressions, "regression"), RED)
    if standing.suspects:
        return Badge(_counted(standing.suspects, "suspect"), AMBER)
    return Badge("no regression", GREEN) if standing.has_results else Badge("no results yet", GREY)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def draw(label: str, badge: Badge) -> str:
    """The picture. Every text is escaped, wherever it came from."""
    label_px, message_px = (round(len(text) * CHARACTER_PX) + 2 * PADDING_PX for text in (label, badge.message))
    return SVG.format(
        width=label_px + message_px,
        height=HEIGHT_PX,
        inner=label_px - 3,
        title=escape(f"{label}: {badge.message}"),
        colour=escape(badge.colour),
        label=escape(label),
        message=escape(badge.message),
        label_x=label_px / 2,
        message_x=label_px + message_px / 2,
    )
