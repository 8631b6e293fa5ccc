"""The contract: what it reads, what it refuses and how, and that its schema says the same."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import contract
from backend.contract import Invalid, parse_run, schema, to_json, variant_key
from backend.contract_problems import Problems
from backend.contract_rules import Numbers

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "run.json").read_text())
STEP = "results[0].measurements[0]"


def golden(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(GOLDEN), **changes}


def golden_measurement(**changes: Any) -> dict[str, Any]:
    document = golden()
    document["results"][0]["measurements"][0] |= changes
    return document


def refusal(document: Any) -> Invalid:
    with pytest.raises(Invalid) as caught:
        parse_run(document)
    return caught.value


def test_the_golden_run_is_read_and_written_back_unchanged() -> None:
    run = parse_run(GOLDEN)
    assert run.results[0].measurements[0].processes == (5.45, 5.47, 5.46, 5.44, 5.48)
    assert to_json(run) == GOLDEN


def test_the_golden_run_fits_the_published_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.Draft202012Validator(schema()).validate(GOLDEN)


def test_unknown_fields_are_kept_at_every_level() -> None:
    document = golden(flavour={"a": [1, None]})
    document["results"][0]["novel"] = 1
    document["results"][0]["measurements"][1]["novel"] = "x"
    document["results"][0]["correctness"]["checks"][0]["novel"] = True
    run = parse_run(document)
    assert run.results[0].measurements[1].extra == {"novel": "x"}
    assert to_json(run) == document


def test_a_failed_run_needs_no_results_and_carries_its_reason() -> None:
    run = parse_run(golden(status="failed", results=[], error="killed by signal 11", log_tail="Traceback …\n"))
    assert (run.error, run.results) == ("killed by signal 11", ())


REFUSED: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("another schema version", golden(schema="tidemark.run/2"), "schema", '"tidemark.run/2"', "tidemark.run/1"),
    ("a short commit", golden(commit="9f3c2e1"), "commit", '"9f3c2e1"', "hexadecimal"),
    ("a commit that is not hex", golden(commit="z" * 40), "commit", '"zzzz', "hexadecimal"),
    ("an upper-case commit", golden(commit="A" * 40), "commit", '"AAAA', "lower-case"),
    ("a parent that is not hex", golden(parents=["main"]), "parents[0]", '"main"', "hexadecimal"),
    ("an unknown status", golden(status="green"), "status", '"green"', "ok, failed, incomplete, quarantined"),
    ("a missing suite", {k: v for k, v in golden().items() if k != "suite"}, "suite", "missing", "required"),
    ("a time without offset", golden(started_at="2026-11-18T11:20:04"), "started_at", '"2026-11-18T11', "offset"),
    ("an end past all calendars", golden(finished_at="9999-12-31T23:59:59-12:00"), "finished_at", '"9999', "to 9000"),
    ("a start before all calendars", golden(started_at="0001-01-01T00:00:00+14:00"), "started_at", '"0001', "1970"),
    ("an end before the start", golden(finished_at="2026-11-18T10:00:00Z"), "finished_at", '"2026', "not before"),
    ("an attempt of zero", golden(attempt=0), "attempt", "0", "from 1"),
    ("true as a number", golden(attempt=True), "attempt", "true", "whole number"),
    ("an over-long branch", golden(branch="b" * 256), "branch", '"bbb', "at most 255"),
    ("a NUL in a text", golden(error="a\x00b"), "error", '"a', "NUL"),
    ("a NUL in an unknown field", golden(novel={"a": ["\x00"]}), "novel.a[0]", '"', "NUL"),
    ("half a surrogate pair", golden(error="\ud800"), "error", '"\\ud800"', "NUL"),
    ("NaN in an unknown field", golden(novel=math.nan), "novel", "nan", "finite"),
    ("NaN in telemetry", golden(telemetry={"power_w": {"p50": math.nan}}), "telemetry.power_w.p50", "nan", "finite"),
    ("a list as results", golden(results={}), "results", "an object with 0 fields", "a list"),
    ("too many results", golden(results=[{}] * 10_001), "results", "a list of 10001", "at most 10000"),
    ("NaN as a value", golden_measurement(value=math.nan), f"{STEP}.value", "nan", "finite"),
    ("infinity in processes", golden_measurement(processes=[1.0, math.inf]), f"{STEP}.processes[1]", "inf", "finite"),
    (
        "two infinities in samples",
        golden_measurement(samples=[[math.inf, -math.inf]]),
        f"{STEP}.samples[0][0]",
        "inf",
        "",
    ),
    ("a value whose square is infinite", golden_measurement(value=1.7e308), f"{STEP}.value", "1.7e+308", "to 1e+60"),
    ("a process next to 0", golden_measurement(processes=[5e-324]), f"{STEP}.processes[0]", "5e-324", "from 1e-60"),
    ("an integer beyond doubles", golden_measurement(value=10**400), f"{STEP}.value", "an integer of more", "finite"),
    ("text as a value", golden_measurement(value="5.46"), f"{STEP}.value", '"5.46"', "finite number"),
    ("text in samples", golden_measurement(samples=[[1.0, "2"]]), f"{STEP}.samples[0][1]", '"2"', "finite number"),
    ("a wrong direction", golden_measurement(direction="down"), f"{STEP}.direction", '"down"', "lower, higher"),
    ("a wrong role", golden_measurement(role="main"), f"{STEP}.role", '"main"', "gate, watch, derived, phase"),
    ("a metric with spaces", golden_measurement(metric="step ms"), f"{STEP}.metric", '"step ms"', "letters"),
    (
        "a value that is not the median",
        golden_measurement(value=5.6),
        f"{STEP}.value",
        "5.6",
        "median of `processes`, 5.46",
    ),
    (
        "more sample lists than processes",
        golden_measurement(samples=[[1.0]] * 6),
        f"{STEP}.samples",
        "a list of 6",
        "5",
    ),
]


@pytest.mark.parametrize(
    ("document", "path", "value", "accepted"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_a_refusal_names_the_path_the_value_and_what_is_accepted(
    document: dict[str, Any], path: str, value: str, accepted: str
) -> None:
    refused = refusal(document)
    assert refused.path == path
    assert refused.value.startswith(value)
    assert accepted in refused.accepted


def test_a_short_sha_is_refused_in_words_that_say_what_a_whole_one_is() -> None:
    refused = refusal(golden(commit="9f3c2e1"))
    assert refused.accepted == "a full commit id: 40 (or 64) lower-case hexadecimal digits"


@pytest.mark.parametrize("role", ["gate", "watch", "phase", "derived"])
def test_a_negative_time_is_refused_in_every_role(role: str) -> None:
    document = golden_measurement(role=role, value=-5.46, processes=[], samples=[])
    assert refusal(document).path == f"{STEP}.value"
    document = golden_measurement(role=role, value=5.46, processes=[-1.0, 5.46, 9.0], samples=[[1.0, -2.0]])
    assert [problem.path for problem in refusal(document).problems] == [f"{STEP}.processes[0]", f"{STEP}.samples[0][1]"]


def test_a_derived_difference_may_be_negative() -> None:
    run = parse_run(golden_measurement(role="derived", unit="ratio", value=-0.1, processes=[], samples=[]))
    assert run.results[0].measurements[0].value == -0.1


def test_a_value_may_be_rounded_but_not_off() -> None:
    assert parse_run(golden_measurement(value=5.465))
    assert refusal(golden_measurement(value=5.466)).path == f"{STEP}.value"


def test_numbers_whose_sum_is_no_number_are_read_as_they_are() -> None:
    largest = [1.7e308] * 3
    problems = Problems()
    assert Numbers(max_items=3).read(largest, None, problems) == tuple(largest)
    assert not problems.found


@pytest.mark.parametrize("number", [1e30, -1e308, 2**63])
def test_a_parameter_is_no_number_that_no_reader_takes_back(number: float) -> None:
    document = golden()
    document["results"][0]["variant"]["experts"] = number
    refused = refusal(document)
    assert refused.path == "results[0].variant.experts" and "a finite number below 2^63" in refused.accepted


def test_a_variant_may_stand_only_once() -> None:
    document = golden()
    document["results"].append(copy.deepcopy(document["results"][0]))
    document["results"][1]["variant"]["experts"] = 64.0
    refused = refusal(document)
    assert refused.path == "results[1].variant"
    assert "results[0] has it" in refused.accepted
    document["results"][1]["preset"] = "cpu"
    assert len(parse_run(document).results) == 2


def test_a_metric_may_stand_only_once_in_a_result() -> None:
    document = golden()
    document["results"][0]["measurements"][2]["metric"] = "step_ms"
    assert refusal(document).path == "results[0].measurements[2].metric"


def test_problems_are_told_together_up_to_twenty() -> None:
    document = golden(commit="x", status="y")
    assert [problem.path for problem in refusal(document).problems] == ["commit", "status"]
    document["results"] = [{"benchmark": "a b", "status": "ok"}] * 30
    refused = refusal(document)
    assert (len(refused.problems), refused.more) == (20, 12)
    assert str(refused).endswith("and 12 more")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"", "cut short"),
        (b"{", "cut short"),
        (b'{"a": tru}', '"tru}"'),
        (b'{"a": "\xff"}', "bytes that are not UTF-8"),
        (b"[" * 200_000, "deeply nested JSON"),
        (b'{"a": ' * 200_000, "deeply nested JSON"),
        (b"[]", "a list of 0"),
        (b"NaN", "nan"),
        (b'{"n": ' + b"9" * 5_000 + b"}", "unreadable"),
        (b" " * 50_000_001, "50000001 bytes"),
    ],
    ids=["empty", "cut", "not json", "not utf-8", "deep lists", "deep objects", "a list", "NaN", "digits", "50 MB"],
)
def test_a_body_that_is_no_run_is_refused(body: bytes, value: str) -> None:
    refused = refusal(body)
    assert refused.path == "run"
    assert refused.value.startswith(value)


def test_deep_unknown_fields_are_refused_and_not_a_crash() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = {"a": deep}
    assert "deep" in refusal(golden(novel=deep)).accepted


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, entry in entries for place in places(entry, (*at, key)))]


@settings(max_examples=400, deadline=None)
@given(place=st.sampled_from([place for place in places(GOLDEN) if place]), junk=JSON)
def test_any_junk_anywhere_is_read_and_written_back_or_refused_by_name(place: tuple[str | int, ...], junk: Any) -> None:
    document = golden()
    target: Any = document
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = junk
    try:
        run = parse_run(document)
    except Invalid as refused:
        assert refused.problems
        assert all(problem.path and problem.accepted for problem in refused.problems)
        json.dumps(str(refused)).encode()
    else:
        assert to_json(run) == document
        assert parse_run(json.dumps(to_json(run))) == run
        jsonschema.Draft202012Validator(schema()).validate(document)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_refused_and_nothing_else_is_raised(body: bytes) -> None:
    assert refusal(body).problems


def test_a_variant_key_is_sorted_escaped_and_blind_to_how_a_number_is_written() -> None:
    assert variant_key({"experts": 64, "dtype": "bf16"}) == "dtype=bf16,experts=64"
    assert variant_key({"experts": 64.0}) == variant_key({"experts": 64}) == "experts=64"
    assert variant_key({"a": "x,y=z%", "b": True, "c": None}) == "a=x%2Cy%3Dz%25,b=true,c=null"
    assert variant_key({}) == ""


VARIANT = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3)


@given(VARIANT, VARIANT)
def test_variants_of_different_texts_have_different_keys(one: dict[str, str], other: dict[str, str]) -> None:
    assert (variant_key(one) == variant_key(other)) == (one == other)


def test_run_ids_are_ulids_that_sort_by_time() -> None:
    ids = [contract.new_run_id() for _ in range(50)]
    assert all(parse_run({**GOLDEN, "id": run_id}).id == run_id and len(run_id) == 26 for run_id in ids)
    assert len(set(ids)) == 50
    assert [run_id[:10] for run_id in ids] == sorted(run_id[:10] for run_id in ids)


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "short"])
def test_a_run_id_is_a_ulid(run_id: str) -> None:
    with pytest.raises(Invalid):
        parse_run({**GOLDEN, "id": run_id})
