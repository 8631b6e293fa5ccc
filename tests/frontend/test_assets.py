"""Static files and what pages promise of them."""

import re
from pathlib import Path

from frontend.assets import STATIC_DIR, load_assets
from frontend.render import TEMPLATES, plain, visible


def test_the_address_of_a_file_changes_with_the_content_of_any() -> None:
    assets = load_assets()
    assert re.fullmatch(r"/static/[0-9a-f]{12}/style\.css", assets.url("style.css"))


def test_the_chart_library_keeps_its_licence_and_is_small_on_the_wire() -> None:
    assert "MIT License" in (STATIC_DIR / "vendor/plotly/LICENSE").read_text()
    plotly = load_assets().files["vendor/plotly/plotly-basic.min.js"]
    assert b"plotly.js (basic - minified) v4.1.1" in plotly.content[:200]
    assert len(plotly.gzipped()) < 400_000


def test_no_template_has_an_inline_script_or_an_inline_handler() -> None:
    for path in TEMPLATES.rglob("*.html"):
        text = path.read_text()
        for script in re.findall(r"<script[^>]*>", text):
            assert "src=" in script or 'type="application/json"' in script, f"{path.name}: {script}"
        assert not re.search(r"\son[a-z]+\s*=", text), path.name
        assert "javascript:" not in text, path.name


def test_templates_never_switch_escaping_off() -> None:
    for path in TEMPLATES.rglob("*.html"):
        assert "|safe" not in path.read_text(), path.name
        assert "autoescape" not in path.read_text(), path.name


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in [
        *TEMPLATES.rglob("*.html"),
        *(p for p in STATIC_DIR.rglob("*") if p.suffix in (".js", ".css") and "vendor" not in p.parts),
    ]:
        assert not re.search(r"""(?:src|href|url\()\s*=?\s*["']?https?://""", path.read_text()), path.name


def test_every_colour_of_a_page_is_a_token() -> None:
    style = (STATIC_DIR / "style.css").read_text()
    tokens, rules = style.split(":root[data-theme=light]", 1)
    assert tokens.count("light-dark(") > 40
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b", rules + Path(STATIC_DIR / "board.css").read_text())


def test_foreign_text_is_escaped_and_control_characters_are_shown() -> None:
    assert str(plain("<b>\u202egnp\x00")) == "<bdi>&lt;b&gt;␦gnp␀</bdi>"
    assert visible("line\nnext\ttab") == "line\nnext\ttab"
