"""What keeps the house in order: folders one can see through, and imports that never come back."""

from tests.house import MOST_MODULES, ROOT, circles_of, folders_of, hops_of

MOST_HOPS = 12
"""Files on the path of one result, as ARCHITECTURE.md describes it. Lower it when the path gets shorter."""


def test_no_folder_has_more_modules_than_one_sees_at_a_glance() -> None:
    assert {str(folder): count for folder, count in folders_of(ROOT).items() if count > MOST_MODULES} == {}


def test_no_module_imports_itself_round_about() -> None:
    assert circles_of(ROOT) == []


def test_the_way_of_one_result_gets_no_longer() -> None:
    assert 0 < len(hops_of(ROOT)) <= MOST_HOPS
