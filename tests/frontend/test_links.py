"""Addresses: the URL is the state."""

from frontend.links import Here, commit_url, link, links_to, long_parameters, series_name, web_address


def test_a_control_changes_one_parameter_and_keeps_the_rest() -> None:
    here = Here("/board", [("project", "a/b"), ("suite", "moe"), ("suite", "gpt"), ("cursor", "12")])
    assert here(range="30d") == "/board?project=a%2Fb&suite=moe&suite=gpt&range=30d"
    assert here(suite=None) == "/board?project=a%2Fb"


def test_another_page_keeps_the_place_and_drops_the_filters() -> None:
    here = Here("/board", [("project", "a/b"), ("testbed", "cpu"), ("q", "router"), ("theme", "dark")])
    assert here.page("/workers") == "/workers?project=a%2Fb&testbed=cpu&theme=dark"


def test_only_a_web_address_becomes_a_link() -> None:
    assert web_address("https://github.com/a/b.git") == "https://github.com/a/b"
    assert commit_url("https://github.com/a/b", "f00") == "https://github.com/a/b/commit/f00"
    for other in ("javascript:alert(1)", "file:///etc", "git@github.com:a/b", None, ""):
        assert web_address(other) is None


def test_many_addresses_at_once_are_those_made_one_by_one() -> None:
    shas = ("9f3c2e1", "a b&c", "é")
    assert links_to("/series/7", "commit", shas) == [link("/series/7", commit=sha) for sha in shas]


def test_a_long_parameter_is_cut_in_the_name_of_a_series_and_kept_whole_beside_it() -> None:
    variant = {"dtype": "bf16", "args": "x" * 500}
    assert series_name("moe.layer", variant) == f"moe.layer dtype=bf16, args={'x' * 59}…"
    assert long_parameters(variant) == {"args": "x" * 500}
