"""TensorBoard event files, as torchtitan and most training loops write them: scalars by tag and step."""

import struct
from collections.abc import Iterator
from typing import Any

from backend.contract import Role
from backend.importers.direction import direction_of_name, direction_of_unit
from backend.importers.file import ResultFile, Unreadable
from backend.importers.general.table import UNIT
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import moment_of

# torchtitan's tags; of others the unit stands in brackets or is not stated.
METRICS = {
    "throughput(tps)": Metric("tokens_per_s", "tokens/s"),
    "time_metrics/end_to_end(s)": Metric("step_s", "s"),
    "time_metrics/data_loading(s)": Metric("data_loading_s", "s", None, Role.WATCH),
    "mfu(%)": Metric("mfu", "%", None, Role.WATCH),
    "tflops": Metric("tflops", "TFLOPS", None, Role.WATCH),
    "memory/max_reserved(GiB)": Metric("max_reserved_gib", "GiB"),
    "memory/max_active(GiB)": Metric("max_active_gib", "GiB", None, Role.WATCH),
}
LEARNING = ("loss", "grad", "lr", "learning_rate", "accuracy", "perplexity", "weight", "param")
UNNAMED = "an event file does not name what was trained; state it with --variant config=NAME"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FLOAT, DOUBLE = 1, 2  # TensorFlow's data types
Field = tuple[int, Any]


def detect(file: ResultFile) -> bool:
    return b"brain.Event:" in file.data[:64]


def read(file: ResultFile, context: Context) -> Draft:
    """The steps of a run are samples of one process; the first one of each tag is left out: it holds compilation."""
    draft = Draft()
    if "config" not in context.variant:
        draft.refuse(file.name, UNNAMED)
        return draft
    scalars: dict[str, list[float]] = {}
    began: float | None = None
    for event in _records(file):
        fields = list(_fields(event))
        time = next((value for number, value in fields if number == 1), None)
        if began is None and isinstance(time, bytes):
            began = struct.unpack("<d", time)[0]
        for number, summary in fields:
            if number == 5 and isinstance(summary, bytes):
                for tag, value in _scalars(summary):
                    scalars.setdefault(tag, []).append(value)
    left = []
    for tag, values in scalars.items():
        metric = _metric(tag)
        if metric is None:
            left.append(tag)
            continue
        finite = tuple(value for value in (values[1:] or values) if value - value == 0)
        draft.readings.append(
            metric.reading((), samples=finite, where=f"{file.name} {tag}", benchmark="training", variant={},
                           suite="tensorboard", at=moment_of(began))
        )  # fmt: skip
    if not scalars:
        draft.refuse(file.name, "holds no scalars: nothing was logged in this run")
    elif not draft.readings:
        draft.refuse(file.name, f"no tag says anything of speed or memory: {', '.join(sorted(left)[:20])}")
    elif left:
        draft.note(f"tags left out because they do not indicate speed or memory: {', '.join(sorted(left)[:20])}")
    return draft


def _metric(tag: str) -> Metric | None:
    known = METRICS.get(tag)
    if known is not None:
        return known
    found = UNIT.match(tag)
    name, unit = (found["name"], found["unit"]) if found else (tag, "")
    learning = any(word in name.lower() for word in LEARNING)
    if learning or (direction_of_unit(unit) or direction_of_name(name)) is None:
        return None
    return Metric(name, unit, None, Role.WATCH)


def _records(file: ResultFile) -> Iterator[bytes]:
    """TFRecords: length, its checksum, data, its checksum. One that was cut off ends the file."""
    at = 0
    while at + 12 <= len(file.data):
        (length,) = struct.unpack_from("<Q", file.data, at)
        if at + 12 + length + 4 > len(file.data):
            return
        yield file.data[at + 12 : at + 12 + length]
        at += 12 + length + 4


def _scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    """The scalar values of a Summary message: as `simple_value`, or as a tensor of one number."""
    for number, value in _fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        fields = dict(_fields(value))
        tag = fields.get(1)
        if not isinstance(tag, bytes):
            continue
        if isinstance(fields.get(2), bytes) and len(fields[2]) == 4:
            yield tag.decode("utf-8", "replace"), struct.unpack("<f", fields[2])[0]
        elif isinstance(fields.get(8), bytes):
            scalar = _tensor(fields[8])
            if scalar is not None:
                yield tag.decode("utf-8", "replace"), scalar


def _tensor(message: bytes) -> float | None:
    fields = dict(_fields(message))
    for number, code in ((5, "<f"), (6, "<d"), (4, {FLOAT: "<f", DOUBLE: "<d"}.get(fields.get(1, 0), ""))):
        raw = fields.get(number)
        if code and isinstance(raw, bytes) and len(raw) == struct.calcsize(code):
            return float(struct.unpack(code, raw)[0])
    return None


def _fields(message: bytes) -> Iterator[Field]:
    """The fields of a protobuf message by number: whole numbers as such, everything else as its bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, at = _varint(message, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise Unreadable("an event that is not a protobuf message")
        if at + length > len(message):
            raise Unreadable("an event that ends too early")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
    raise Unreadable("an event with a number that does not end")


FORMAT = Format(
    name="tensorboard",
    title="TensorBoard event file (torchtitan and others)",
    detect=detect,
    read=read,
    identity="the tag, and what was trained as --variant config=NAME states it",
    metrics=METRICS,
    suffixes=(".tfevents",),
)
