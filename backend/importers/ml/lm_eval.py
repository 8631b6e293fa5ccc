"""lm-evaluation-harness: `results_*.json`."""

from collections.abc import Mapping
from typing import Any

from backend.contract import Direction
from backend.importers.direction import direction_of_name
from backend.importers.file import ResultFile
from backend.importers.model import Context, Draft, Format, Reading
from backend.importers.values import mapping, moment_of, scalars, text_of

NO_MODEL = "names no model; state it with --variant model=NAME"
NO_METRICS = frozenset({"alias", "samples", "sample_len", "name"})


def detect(file: ResultFile) -> bool:
    first = file.first
    return isinstance(first.get("results"), dict) and ("versions" in first or "n-shot" in first) and "config" in first


def read(file: ResultFile, context: Context) -> Draft:
    """Each metric of each task. The harness says which way a metric is better; a standard error is no metric."""
    document = file.object_with("lm-eval's object with objects `results` and `config`", results=dict, config=dict)
    draft = Draft()
    config, shots, versions = document["config"], mapping(document.get("n-shot")), mapping(document.get("versions"))
    model = text_of(document.get("model_name")) or text_of(config.get("model_args")) or text_of(config.get("model"))
    better = mapping(document.get("higher_is_better"))
    if model is None and "model" not in context.variant:
        draft.refuse(file.name, NO_MODEL)
        return draft
    for task, values in document["results"].items():
        variant: dict[str, Any] = {
            "model": model or "",
            **scalars({"shots": shots.get(task), "version": versions.get(task), "limit": config.get("limit")}),
        }
        for key, raw in mapping(values).items():
            name, _, kept = key.partition(",")
            if name.endswith("_stderr") or name in NO_METRICS or not name.strip():
                continue
            where = f"{file.name} results.{task}.{key}"
            value = draft.number_at(where, raw)
            if value is None:
                continue
            way = _direction(mapping(better.get(task)), name)
            own = {} if kept in {"", "none"} else {"filter": kept}
            draft.readings.append(
                Reading(where=where, benchmark=task, metric=name, unit="1", direction=way, values=(value,),
                        variant={**variant, **own}, suite="lm-eval", at=moment_of(document.get("date")))
            )  # fmt: skip
    return draft


def _direction(better: Mapping[str, Any], metric: str) -> Direction | None:
    """As the harness says it of the metric; of one that it names otherwise there, such as `pass@1` of `pass_at_k`, as
    it says it of all metrics of the task."""
    said = better[metric] if metric in better else next(iter(better.values()), None) if len(better) == 1 else None
    return direction_of_name(metric) if said is None else Direction.HIGHER if said else Direction.LOWER


FORMAT = Format(
    name="lm-eval",
    title="lm-evaluation-harness results (results_*.json)",
    detect=detect,
    read=read,
    identity="the task with its version, the model, shots, limit and filter",
)
