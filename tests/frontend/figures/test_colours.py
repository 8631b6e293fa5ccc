"""Colours of variants: told apart by every pair of eyes, in both themes, and visible on their surface."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path

import pytest

from frontend.figures.curves import COLOURS

STYLE = Path(__file__).parents[3] / "frontend" / "static" / "style.css"
LEAST_DISTANCE = 20.0  # of CIELAB; neighbours on a chart are told apart from about ten on
LEAST_CONTRAST = 3.0  # WCAG's floor for graphics
# How linear RGB looks to those who lack one kind of cone (Machado, Oliveira and Fernandes, 2009, severity 1).
VISION = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
THEMES = ("light", "dark")
Triple = tuple[float, float, float]


def token(name: str, theme: str) -> Triple:
    """A colour of the style sheet as linear RGB."""
    found = re.search(rf"{name}: light-dark\(#([0-9a-f]{{6}}), #([0-9a-f]{{6}})\)", STYLE.read_text())
    assert found is not None, f"{name} is no token of both themes"
    text = found[1 + THEMES.index(theme)]
    red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return linear(red), linear(green), linear(blue)


def linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def seen(colour: Triple, vision: str) -> Triple:
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, colour, strict=True)))) for row in VISION[vision]
    )
    return red, green, blue


def lab(colour: Triple) -> Triple:
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = luminance(colour)
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def luminance(colour: Triple) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISION)
def test_no_two_variants_look_alike(theme: str, vision: str) -> None:
    looks = {name: lab(seen(token(name, theme), vision)) for name in COLOURS}
    close = {(a, b): math.dist(looks[a], looks[b]) for a, b in combinations(COLOURS, 2)}
    assert min(close.values()) >= LEAST_DISTANCE, min(close.items(), key=lambda each: each[1])


@pytest.mark.parametrize("theme", THEMES)
def test_every_variant_stands_out_from_its_surface(theme: str) -> None:
    ground = luminance(token("--surface", theme))
    for name in COLOURS:
        low, high = sorted((ground, luminance(token(name, theme))))
        assert (high + 0.05) / (low + 0.05) >= LEAST_CONTRAST, name
