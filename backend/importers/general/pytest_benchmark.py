"""pytest-benchmark: the file of `pytest --benchmark-json`."""

from collections.abc import Mapping
from typing import Any

from backend.contract import Direction
from backend.importers.file import ResultFile
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import is_scalar, mapping, moment_of, number, numbers, sha_of, text_of

SECONDS = Metric("seconds", "s", Direction.LOWER)


def detect(file: ResultFile) -> bool:
    return "benchmarks" in file.first and ("machine_info" in file.first or "commit_info" in file.first)


def read(file: ResultFile, context: Context) -> Draft:
    """Seconds a round, with the raw rounds where `--benchmark-save-data` kept them."""
    document = file.object_with("pytest-benchmark's object with a list `benchmarks`", benchmarks=list)
    draft = Draft()
    commit, machine = mapping(document.get("commit_info")), mapping(document.get("machine_info"))
    for index, raw in enumerate(document["benchmarks"]):
        where, entry = f"{file.name} benchmarks[{index}]", mapping(raw)
        stats = mapping(entry.get("stats"))
        median, rounds = number(stats.get("median")), numbers(stats.get("data")) or ()
        name = text_of(entry.get("fullname")) or text_of(entry.get("name"))
        if name is None or (median is None and not rounds):
            draft.refuse(where, "no stats.median and no stats.data" if name else "no fullname and no name")
            continue
        test, variant = _test(name, entry)
        draft.readings.append(
            SECONDS.reading(
                () if rounds or median is None else (median,),
                samples=rounds,
                where=where,
                benchmark=test,
                variant=variant,
                commit=sha_of(commit.get("id")),
                branch=text_of(commit.get("branch")),
                at=moment_of(document.get("datetime")),
                worker=text_of(machine.get("node")),
                environment={
                    "python": str(machine.get("python_version", "")),
                    "cpu": str(mapping(machine.get("cpu")).get("brand_raw", "")),
                },
            )
        )
    return draft


def _test(name: str, entry: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The test, and what tells its cases apart: its parameters, and the id that pytest gave the case. The group it is
    shown in says nothing of what it is."""
    test, bracket, case = name.partition("[")
    parameters = mapping(entry.get("params"))
    if not bracket or not case.endswith("]") or not test:
        return name, _written(parameters)
    return test, {**_written(parameters), "case": case[:-1]}


def _written(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that can be written; others pytest writes as the place in memory where they were."""
    return {key: value for key, value in parameters.items() if is_scalar(value)}


FORMAT = Format(
    name="pytest-benchmark",
    title="pytest-benchmark JSON",
    detect=detect,
    read=read,
    identity="the test's full name, with its parameters and the id of its case",
    metrics={"stats": SECONDS},
)
