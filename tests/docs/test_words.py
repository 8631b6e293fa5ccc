"""One word for one thing: names in the code, beside the glossary."""

import ast
from collections import defaultdict

from tests.places import ROOT, modules

ALIKE = {
    "Correctness": "the suite stands alone and says it as the contract reads it",
    "Direction": "as a run says it, as the rule takes it, as the suite states it",
    "Protection": "the service asks for what the worker provides; the worker imports nothing of the service",
    "Role": "as a run says it, as the rule takes it, as the suite states it",
}
"""The same thing in rooms that do not import each other."""


def test_no_class_name_stands_for_two_things() -> None:
    places = defaultdict(list)
    for module in modules():
        for node in ast.walk(ast.parse((ROOT / module).read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(module))
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in ALIKE} == {}
    assert all(len(places[name]) > 1 for name in ALIKE), "a name that only one class has needs no excuse"
