"""What the list says of a bulk action just taken."""

from frontend.links import Here
from frontend.pages.regression.triage import Done, done_of


def done(deed: str, refused: str = "") -> Done | None:
    return done_of(Here("/regressions", [("done", deed), ("refused", refused)]))


def test_a_deed_names_its_regressions_and_the_way_back() -> None:
    assert done("acknowledge~3~5") == Done(words="2 regressions taken.", ids=(3, 5), undo="undo")
    assert done("bisect~3") == Done(words="1 regression being bisected.", ids=(3,), undo="stop-bisecting")


def test_those_to_which_it_could_not_be_done_are_counted() -> None:
    found = done("bisect~3", refused="2")
    assert found is not None and found.words == "1 regression being bisected. 2 cannot be: their page says why."


def test_an_address_that_somebody_made_up_says_nothing() -> None:
    for deed in ("", "dance~3", "bisect~x", "bisect~99999999999"):
        assert done(deed) is None
    assert done("bisect~3", refused="<b>") is None
