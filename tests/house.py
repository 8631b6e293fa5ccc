"""The size of the house, as figures: `python -m tests.house [COMMIT]`, of the files as they are or of a commit."""

import argparse
import ast
import io
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath

ROOT = Path(__file__).parents[1]
PACKAGES = ("backend", "frontend", "worker", "benchmarks", "tidemark")
COUNTED = (
    *(f"backend/{package}" for package in ("regression", "store", "services", "api", "importers")),
    "frontend",
    "worker",
    "benchmarks",
    "tidemark",
)
LONG_FILE, LONG_FUNCTION, MANY_PARAMETERS = 400, 50, 6
FRAMEWORK = ("get", "post", "put", "patch", "delete", "command", "callback")
MOST_MODULES = 16
"""Of a folder: more, and nobody sees at a glance what is in it."""


def modules_of(root: Path) -> list[Path]:
    return sorted(
        path for package in PACKAGES for path in (root / package).rglob("*.py") if not path.name.startswith("__")
    )


def folders_of(root: Path) -> Counter[PurePath]:
    """How many modules stand in each folder."""
    return Counter(path.parent.relative_to(root) for path in modules_of(root))


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def is_of_framework(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a framework reads its signature: a route of the API or a page, a command of the command line."""
    calls = [each.func for each in node.decorator_list if isinstance(each, ast.Call)]
    return any(isinstance(call, ast.Attribute) and call.attr in FRAMEWORK for call in calls)


def imports_of(path: Path, root: Path, known: set[str]) -> set[str]:
    """Modules of ours that a module imports when it is loaded."""
    found = set()
    tree = ast.parse(path.read_text())
    for node in [each for top in tree.body for each in ([top] if not isinstance(top, ast.If) else [])]:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known - {name_of(path, root)}


def name_of(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts)


def circles_of(root: Path) -> list[list[str]]:
    """Modules that import each other, directly or round about."""
    paths = {name_of(path, root): path for path in modules_of(root)}
    graph = {name: imports_of(path, root, set(paths)) for name, path in paths.items()}
    left = dict(graph)
    while ground := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in ground:
            del left[name]
    while top := [name for name in left if not any(name in needs for needs in left.values())]:
        for name in top:
            del left[name]
    return [sorted(left)] if left else []


def hops_of(root: Path) -> list[str]:
    """The files that ARCHITECTURE.md names on the path of one result, from its delivery to the board, each once."""
    text = (root / "ARCHITECTURE.md").read_text()
    way = text.partition("## The path of one result")[2].partition("\n## ")[0].partition("\n\nThen all")[0]
    names = [part.partition(":")[0] for part in way.split("`")[1::2]]
    return list(dict.fromkeys(name for name in names if name.endswith(".py") and (root / name).exists()))


def figures_of(root: Path) -> dict[str, object]:
    lines = {path.relative_to(root): len(path.read_text().splitlines()) for path in modules_of(root)}
    functions = [node for path in modules_of(root) for node in functions_of(path)]
    many = [node for node in functions if parameters_of(node) > MANY_PARAMETERS]
    longest = max(lines, key=lambda path: lines[path])
    folder, most = folders_of(root).most_common(1)[0]
    return {
        "modules": len(lines),
        "lines": sum(lines.values()),
        **{
            f"… of {package}": sum(lines[each] for each in lines if each.is_relative_to(package)) for package in COUNTED
        },
        f"files over {LONG_FILE} lines": sum(count > LONG_FILE for count in lines.values()),
        "longest file": f"{longest} ({lines[longest]})",
        f"functions over {LONG_FUNCTION} lines": sum(lines_of(node) > LONG_FUNCTION for node in functions),
        f"signatures with more than {MANY_PARAMETERS} parameters": sum(not is_of_framework(node) for node in many),
        "… of routes and commands": sum(is_of_framework(node) for node in many),
        f"folders of more than {MOST_MODULES} modules": sum(n > MOST_MODULES for n in folders_of(root).values()),
        "fullest folder": f"{folder} ({most})",
        "modules in circles of imports": sum(map(len, circles_of(root))),
        "files on the path of one result": len(hops_of(root)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("commit", nargs="?", help="a commit; without it, the files as they are")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory(prefix="tidemark-house-") as place:
        root = ROOT
        if commit is not None:
            archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
                tree.extractall(place, filter="data")
            root = Path(place)
        for what, value in figures_of(root).items():
            print(f"{what:45} {value}")


if __name__ == "__main__":
    main()
