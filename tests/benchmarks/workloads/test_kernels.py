"""Single kernels: what wrong ones are told, what the loss keeps, and products in eight bits, on a CPU."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness.workload import Job  # noqa: E402
from benchmarks.registry import BY_ID, find  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads import kernels  # noqa: E402

SMALL = {
    "kernel.norm": {"kind": "rms", "rows": 32, "width": 64},
    "kernel.softmax": {"rows": 32, "columns": 64},
    "kernel.linear_cross_entropy": {"rows": 48, "width": 16, "vocabulary": 96, "chunk": 16},
    "kernel.skinny_gemm": {"rows": 16, "inner": 64, "columns": 96},
}
CLASSES = {
    "kernel.norm": kernels.Norm,
    "kernel.softmax": kernels.Softmax,
    "kernel.linear_cross_entropy": kernels.LinearCrossEntropy,
    "kernel.skinny_gemm": kernels.SkinnyGemm,
}


def workload(name, how, dtype="fp32", **config):
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1234, "tasks": ()}
    whole = {**SMALL[name], "how": how, "dtype": dtype, "device": "cpu", **config}
    return CLASSES[name](Job(benchmark=name, workload="", variant={}, config=whole, preset="cpu", **fields))


WRONG = {
    "no epsilon, no mean": (
        "kernel.norm",
        {"kind": "layer"},
        lambda x, w, b: x * torch.rsqrt(x.square().mean(-1, True)) * w + b,
    ),
    "no weight": ("kernel.norm", {}, lambda x, w: torch.nn.functional.rms_norm(x, (64,))),
    "overflows": ("kernel.softmax", {}, lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)),
    "over columns": ("kernel.softmax", {}, lambda x: torch.softmax(x, 0)),
    "a sum for a mean": (
        "kernel.linear_cross_entropy",
        {},
        lambda x, w, t: torch.nn.functional.cross_entropy(x @ w.t(), t, reduction="sum"),
    ),
    "no gradient of the weights": (
        "kernel.linear_cross_entropy",
        {},
        lambda x, w, t: torch.nn.functional.cross_entropy(x @ w.detach().t(), t),
    ),
    "rows left out": ("kernel.skinny_gemm", {}, lambda x, w: torch.cat([x[:8] @ w, torch.zeros_like(x[8:] @ w)])),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_fails_its_check(monkeypatch, name):
    benchmark, config, wrong = WRONG[name]
    made = workload(benchmark, "torch", **config)
    assert made.check().failed is None
    reference = made.reference
    monkeypatch.setattr(made, "plain", wrong)
    if benchmark == "kernel.linear_cross_entropy":
        right = workload(benchmark, "torch")
        reference = right.reference
    monkeypatch.setattr(made, "reference", reference)
    assert made.check().failed is not None


def test_a_loss_in_chunks_is_the_loss_and_keeps_no_logits():
    kept = {}
    for how in ("plain", "chunked"):
        assert workload("kernel.linear_cross_entropy", how, "bf16").check().failed is None
        made = workload("kernel.linear_cross_entropy", how, rows=256, vocabulary=512)
        assert made.check().failed is None, made.check().sentence()
        made.prepare()
        kept[how] = next(c.value for c in made.counters() if c.metric == "activation_bytes")
    logits = 256 * 512 * 4
    assert kept["plain"] > logits > kept["chunked"]


def test_a_chunk_that_is_forgotten_fails_the_check(monkeypatch):
    made = workload("kernel.linear_cross_entropy", "chunked")
    whole = kernels._Chunked.forward

    def first_chunk_only(ctx, x, w, target, chunk):
        return whole(ctx, x[:chunk], w, target[:chunk], chunk)

    monkeypatch.setattr(kernels._Chunked, "forward", staticmethod(first_chunk_only))
    try:
        assert made.check().failed is not None
    except RuntimeError as error:
        assert "shape" in str(error)


@pytest.mark.parametrize("how", ["fp8_exact", "fp8_fast"])
def test_products_in_eight_bits_are_those_of_their_rounded_operands(how):
    made = workload("kernel.skinny_gemm", how, "bf16")
    assert made.check().failed is None, made.check().sentence()
    drawn = made.inputs(reduced=False)
    exact = drawn.learned["x"] @ drawn.learned["weight"]
    rounding = (made.function(drawn.to(torch.bfloat16, "cpu")).float() - exact).detach()
    assert 0.005 < float(rounding.norm() / exact.norm()) < 0.1, "eight bits were used at all"


def test_formulas_count_bytes_and_flop_of_the_published_sizes():
    norm = next(c for c in BY_ID["kernel.norm"].cases(Preset.FULL) if c.config["width"] == 4096)
    made = workload("kernel.norm", "torch", "bf16", rows=norm.config["rows"], width=4096)
    assert made.work.bytes == 5 * 16384 * 4096 * 2
    loss = BY_ID["kernel.linear_cross_entropy"].cases(Preset.FULL)[0].config
    made = workload(
        "kernel.linear_cross_entropy", "plain", "bf16", **{k: loss[k] for k in ("rows", "width", "vocabulary")}
    )
    assert made.work.flop == 6 * 8192 * 4096 * 128256
    made = workload("kernel.skinny_gemm", "mm", "bf16", rows=1, inner=8192, columns=28672)
    assert made.work.bytes == 2 * (8192 * 28672 + 8192 + 28672)
    assert made.work.flop / made.work.bytes < 1.01, "one row: every weight is read for one product"


def test_what_is_compiled_says_so_and_a_cpu_leaves_it_out_with_a_sentence():
    for benchmark in find("kernel.*"):
        for case in benchmark.cases(Preset.CPU):
            assert (case.backend == "inductor") == (case.variant["how"] == "compiled")
            assert bool(case.not_applicable) == (case.variant["how"] in ("compiled", "fp8_exact", "fp8_fast"))
    assert workload("kernel.norm", "compiled").compiles and not workload("kernel.norm", "torch").compiles


@pytest.mark.parametrize("name", CLASSES)
def test_a_kernel_finds_nothing_of_its_last_step_near(name):
    """A soft-max over 1,024 columns has 16 MB, which the L2 would keep: its speed was taken for that of memory."""
    how = "mm" if name == "kernel.skinny_gemm" else "torch"
    assert workload(name, how).flushes
