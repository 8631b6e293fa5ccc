"""One bad record costs one record; a file is read however it is packed; and what cannot be used says why."""

import gzip
import json

import pyarrow
import pytest

from backend.contract import MOST_KEY_BYTES, Direction, ResultStatus, variant_key
from backend.importers import Context, Imported, Unreadable, read_file

SHA = "9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a"
STATED = Context(project="northsea/loom", testbed="h200-sxm", commit=SHA)
ROWS = b"benchmark,metric,value,unit\nb,step,1.5,ms\n"
PACKED = gzip.compress(ROWS, mtime=0)


def read(name: str, content: object, context: Context = STATED, format_name: str | None = None) -> Imported:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return read_file(name, data, context, format_name)


def test_what_go_writes_behind_a_tab_of_its_unit_are_further_metrics() -> None:
    bench = {"name": "BenchmarkPut", "value": 812, "unit": "ns/op\t         8.000 extra/op\t  48 B/op\t 3 MB/s"}
    history = {
        "repoUrl": "x",
        "entries": {"Go": [{"commit": {"id": SHA}, "tool": "go", "date": 1, "benches": [bench]}]},
    }
    (result,) = read("data.js", history).runs[0].results
    found = {m.metric: (m.value, m.unit, m.direction) for m in result.measurements}
    assert found == {
        "value": (812, "ns/op", Direction.LOWER),
        "extra/op": (8.0, "extra/op", Direction.LOWER),
        "B/op": (48, "B/op", Direction.LOWER),
        "MB/s": (3, "MB/s", Direction.HIGHER),
    }


def v3(text: str) -> dict[str, object]:
    return {"benchmark": {"name": "b", "extra_info": {"args": text}}, "model": {"name": "m"}, "head_sha": SHA,
            "metric": {"name": "latency_ms", "benchmark_values": [1.0]}}  # fmt: skip


def test_a_long_parameter_is_kept_whole_and_known_by_a_digest() -> None:
    texts = ["x" * 5000 + "1", "x" * 5000 + "2"]
    results = read("v3.json", [v3(text) for text in texts]).runs[0].results
    assert [result.variant["args"] for result in results] == texts
    keys = [variant_key(result.variant) for result in results]
    assert len(set(keys)) == 2 and max(map(len, keys)) < 300


def test_a_key_of_many_long_parameters_is_short_enough_for_an_index() -> None:
    variants = [{f"p{at}": "é" * 199 + end for at in range(50)} for end in ("1", "2")]
    keys = [variant_key(variant) for variant in variants]
    assert keys[0] != keys[1] and max(len(key.encode()) for key in keys) <= MOST_KEY_BYTES


def test_a_record_that_the_contract_refuses_leaves_the_others_in() -> None:
    rows = b"benchmark,metric,value,unit\ngood,step,1.5,ms\nbad,step,1e70,ms\n"
    imported = read("x.csv", rows)
    assert [result.benchmark for result in imported.runs[0].results] == ["good"]
    assert [problem.where for problem in imported.problems] == ["x.csv:3"] and imported.read == 2


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.csv.gz", PACKED),
        ("x.csv.zst", pyarrow.Codec("zstd").compress(ROWS).to_pybytes()),
        ("x.csv", b"\xef\xbb\xbf" + ROWS),
        ("x.csv.gz", gzip.compress(b"\xef\xbb\xbf" + ROWS, mtime=0)),
    ],
    ids=["gzip", "zstd", "marked", "marked in gzip"],
)
def test_a_packed_file_and_one_with_a_byte_order_mark_are_read(name: str, data: bytes) -> None:
    imported = read(name, data)
    assert (imported.format, imported.measurements, imported.problems) == ("csv", 1, ())


def test_the_token_of_mlperf_is_found_wherever_it_stands() -> None:
    events = [("submission_benchmark", "gpt", 0), ("run_start", None, 1000), ("run_stop", None, 3000)]
    lines = [
        ":::MLLOG " + json.dumps({"key": key, "value": value, "time_ms": at, "metadata": {"status": "success"}})
        for key, value, at in events
    ]
    assert read("out.log", b"chatter\n" * 100_000 + "\n".join(lines).encode()).format == "mllog"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.csv", b"a" * 200_000 + b",b\n1,2\n", "no column is known to be a metric"),
        ("x.csv", b'"' + b"a" * 1_500_000 + b'",b\n1,2\n', "not CSV"),
        ("x.csv.gz", PACKED[:-9], "ends too early"),
        ("x.bin", bytes(range(256)) * 50, "format not recognised"),
        ("x.csv.zst", b"\x28\xb5\x2f\xfdnonsense", "broken zstd"),
    ],
    ids=["no metric", "a cell too long", "cut gzip", "bytes", "no zstd"],
)
def test_a_file_that_cannot_be_read_says_why(name: str, data: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        imported = read(name, data)
        raise AssertionError(imported)


def test_what_fails_is_a_failed_result_and_counts_as_a_record() -> None:
    rows = [{"model_id": "m", "completed": 0, "request_throughput": 0.0}]
    imported = read("v.json", rows)
    assert [result.status for result in imported.runs[0].results] == [ResultStatus.FAILED]
    assert imported.read == 1 and imported.measurements == 0
