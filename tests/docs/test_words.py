"""One word for one thing: names in the code, beside the glossary."""

import ast
from collections import defaultdict

from tests.places import ROOT, modules

ALIKE = {
    # the suite stands alone, and says these as the contract reads them
    "Correctness": {"backend/contract.py", "benchmarks/harness/check.py"},
    "Direction": {"backend/metric.py", "benchmarks/spec.py"},
    "Role": {"backend/metric.py", "benchmarks/spec.py"},
    # the service asks for what the worker provides; the worker imports nothing of the service
    "Protection": {"backend/services/queue/dispatch.py", "worker/isolation/protection.py"},
}
"""The same thing in rooms that do not import each other, and where it stands."""


def test_no_class_name_stands_for_two_things() -> None:
    places = defaultdict(set)
    for module in modules():
        for node in ast.walk(ast.parse((ROOT / module).read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(str(module))
    assert {name: found for name, found in places.items() if len(found) > 1} == ALIKE
