"""Every variant that a CPU can run passes its own check, and wrong implementations of each family do not."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness.plugin import PluginError  # noqa: E402
from benchmarks.harness.workload import Job, NotApplicable  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402

IN_ONE_PROCESS = [b for b in BY_ID.values() if not b.distributed and b.mode not in ("collective", "compile")]
CASES = [
    pytest.param(b, case, id=f"{b.id}-{'-'.join(map(str, case.variant.values()))}")
    for b in IN_ONE_PROCESS
    for case in b.cases(Preset.CPU)
    if case.not_applicable is None
]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def job_of(benchmark, case, implementation=None):
    return Job(
        benchmark=benchmark.id,
        workload=benchmark.workload,
        variant=case.variant,
        config=case.config,
        preset="cpu",
        implementation=implementation,
        builtin=benchmark.builtin,
        process=0,
        processes=1,
        seed=1234,
        tasks=("check",),
    )


def workload_of(job):
    module, _, name = job.workload.partition(":")
    return getattr(importlib.import_module(module), name)(job)


@pytest.mark.parametrize(("benchmark_", "case"), CASES)
def test_the_built_in_implementation_passes_its_check(benchmark_, case):
    found = workload_of(job_of(benchmark_, case)).check()
    assert found.failed is None, found.sentence()
    assert found.findings, "a check that asks nothing cannot fail"


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("gpt.train", {}),
        ("llama.block", {}),
        ("moe.model", {}),
        ("moe.layer", {"impl": "grouped_mm", "experts": 64, "top_k": 8}),
        ("moe.layer", {"impl": "capacity", "experts": 64, "top_k": 8}),
        ("attn.train", {"backend": "sdpa_flash"}),
        ("attn.decode", {}),
    ],
)
def test_the_check_holds_in_the_half_precision_of_accelerators(name, changed):
    case = case_of(name)
    halved = replace(case, config={**case.config, **changed, "dtype": "bf16"})
    found = workload_of(job_of(BY_ID[name], halved)).check()
    assert found.failed is None, found.sentence()


def test_a_gpu_case_without_a_gpu_says_so():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    for name in ("gpt.train", "attn.train", "moe.layer", "ceiling.gemm", "coll.all_reduce", "compile.cold", "gpt.ddp"):
        benchmark = BY_ID[name]
        with pytest.raises(NotApplicable):
            workload_of(job_of(benchmark, benchmark.cases(Preset.SMOKE)[0]))


ATTENTION = """
import math, torch
def attention(q, k, v, *, causal):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return {result}
"""
MOE = """
import torch
from torch.nn.functional import silu
def layer(x, bias, weights, config):
    scores = x @ weights.router_CE
    chosen = (scores + bias).topk(config.top_k, dim=-1).indices
    share = torch.softmax(scores{for_share}.gather(1, chosen), -1)
    y = torch.zeros_like(x)
    for e in range(config.experts):
        token, slot = (chosen == e).nonzero(as_tuple=True)
        {limit}
        out = (silu(x[token] @ weights.gate_ECF[e]) * (x[token] @ weights.up_ECF[e])) @ weights.down_EFC[e]
        y = y.index_add(0, token, out * share[token, slot, None])
    return {result}
"""
DECODE = """
import torch
def decode(q, k, v, lengths):
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    s = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    allowed = torch.arange(k.shape[2])[None, :] < lengths[:, None]
    {mask}
    return torch.softmax(s, -1) @ v
"""
MASKED = 's = s.masked_fill(~allowed[:, None, None, :], float("-inf"))'
GOOD = {
    "attn.train": ("attention", ATTENTION.format(result="torch.softmax(s, -1) @ v")),
    "moe.layer": ("layer", MOE.format(for_share="", limit="pass", result="y")),
    "attn.decode": ("decode", DECODE.format(mask=MASKED)),
}
WRONG = [
    (
        "attn.train",
        "attention",
        ATTENTION.format(result="torch.softmax(s.exp().clamp(max=9) * 0 + s, -1) @ v.roll(1, 2)"),
    ),
    ("attn.train", "attention", ATTENTION.format(result="(s.exp() / s.exp().sum(-1, keepdim=True)) @ v")),
    ("attn.train", "attention", ATTENTION.format(result="torch.softmax(s.detach(), -1) @ v")),
    ("moe.layer", "layer", MOE.format(for_share="", limit="token, slot = token[:9], slot[:9]", result="y")),
    ("moe.layer", "layer", MOE.format(for_share=".detach()", limit="pass", result="y")),
    ("moe.layer", "layer", MOE.format(for_share="", limit="assert len(token)", result="y / len(x)")),
    ("attn.decode", "decode", DECODE.format(mask="pass")),
]
WHY = [
    "wrong values",
    "overflows",
    "no gradient for scores",
    "drops tokens",
    "no gradient to the router",
    "scaled",
    "reads past",
]


def plugged(tmp_path, monkeypatch, name, text):
    module = f"plugged_{abs(hash(text))}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"{module}:{name}"


def case_of(name, **wanted):
    cases = [c for c in BY_ID[name].cases(Preset.CPU) if all(c.variant[k] == v for k, v in wanted.items())]
    return cases[0]


@pytest.mark.parametrize("name", GOOD)
def test_a_plain_plugged_in_implementation_passes(tmp_path, monkeypatch, name):
    function, text = GOOD[name]
    entry = plugged(tmp_path, monkeypatch, function, text)
    found = workload_of(job_of(BY_ID[name], case_of(name), entry)).check()
    assert found.failed is None, found.sentence()


@pytest.mark.parametrize(("name", "function", "text"), WRONG, ids=WHY)
def test_a_wrong_plugged_in_implementation_fails_its_check(tmp_path, monkeypatch, name, function, text):
    entry = plugged(tmp_path, monkeypatch, function, text)
    workload = workload_of(job_of(BY_ID[name], case_of(name), entry))
    try:
        found = workload.check()
    except (AssertionError, RuntimeError):
        return
    assert found.failed is not None
    assert "its speed is void" in found.sentence()


WRONG_GPT = {
    "erf": ('approximate="tanh"', 'approximate="none"', "output_relative_error"),
    "rate": ("lr=config.learning_rate", "lr=config.learning_rate * 30", "loss_at_step_3"),
    "frozen": (
        "return Model(config)",
        "m = Model(config); m.wpe.weight.requires_grad_(False); return m",
        "no gradient for",
    ),
    "shape": ("return self.ln_f(x) @ self.wte.weight.t()", "return self.ln_f(x)", "(B, T, V)"),
    "names": ("self.wpe", "self.positions", "positions.weight"),
    "no_module": ("return Model(config)", "return 7", "must return a torch.nn.Module"),
    "no_step": ("return torch.optim.AdamW(model.parameters(), foreach=False, **how)", "return how", "without step"),
}


@pytest.mark.parametrize("name", WRONG_GPT)
def test_a_wrong_gpt_is_told_what_is_wrong(tmp_path, monkeypatch, gpt_source, name):
    old, new, said = WRONG_GPT[name]
    assert old in gpt_source
    entry = plugged(tmp_path, monkeypatch, "build", gpt_source.replace(old, new))
    workload = workload_of(job_of(BY_ID["gpt.train"], case_of("gpt.train"), entry))
    try:
        told = workload.check().sentence()
    except PluginError as error:
        told = str(error)
    assert said in told


def test_an_implementation_of_the_wrong_shape_is_told_both_shapes(tmp_path, monkeypatch):
    entry = plugged(tmp_path, monkeypatch, "attention", "def attention(q, k, v, *, causal): return v[:, :, :-1]")
    with pytest.raises(PluginError, match=r"expected a tensor of"):
        workload_of(job_of(BY_ID["attn.train"], case_of("attn.train"), entry)).check()


def test_a_forced_backend_that_falls_back_is_an_error_not_a_slow_result(monkeypatch):
    case = case_of("attn.train", backend="sdpa_flash")
    workload = workload_of(job_of(BY_ID["attn.train"], case))
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from benchmarks.workloads.attention import dense as attention

    monkeypatch.setattr(attention, "forced", lambda backend: sdpa_kernel([SDPBackend.MATH]))
    assert workload.check().failed.name == "silent_fallback"


@pytest.mark.parametrize(("mask", "mean"), [("full", 8.0), ("causal", 4.5), ("window", (1 + 2 + 3 * 6) / 8)])
def test_keys_seen_count_elements_exactly(mask, mean):
    from benchmarks.workloads.attention.dense import allowed_SS, keys_seen

    assert keys_seen(mask, 8, 3, [8]) == pytest.approx(mean)
    allowed = allowed_SS(mask, 8, 3, "cpu")
    assert (8.0 if allowed is None else float(allowed.sum()) / 8) == pytest.approx(mean)


def test_documents_are_blocks_of_causal_attention():
    from benchmarks.workloads.attention.dense import allowed_SS, document_lengths, keys_seen

    assert document_lengths(16) == [2, 6, 8]
    assert float(allowed_SS("document", 16, 0, "cpu").sum()) / 16 == pytest.approx(
        keys_seen("document", 16, 0, document_lengths(16))
    )


def test_loads_are_as_uneven_as_their_names_say():
    benchmark = BY_ID["moe.layer"]
    imbalance = {}
    for load in ("uniform", "zipf", "hot"):
        case = case_of("moe.layer", impl="grouped_mm", load=load)
        workload = workload_of(job_of(benchmark, case))
        workload.prepare()
        imbalance[load] = next(c.value for c in workload.counters() if c.metric == "imbalance")
    assert imbalance["uniform"] < 1.25 < imbalance["zipf"] < imbalance["hot"]
    assert imbalance["hot"] == pytest.approx(4.0, rel=0.05), (
        "one of 8 experts gets a row of every token, of 2 rows each"
    )


def test_capacity_drops_and_pads_and_says_how_much():
    case = case_of("moe.layer", impl="capacity")
    hot = replace(case, config={**case.config, "load": "hot"})
    workload = workload_of(job_of(BY_ID["moe.layer"], hot))
    assert workload.check().failed is None
    workload.prepare()
    found = {c.metric: c.value for c in workload.counters()}
    assert found["drop_rate"] > 0.2
    assert found["padding_waste"] > 0.2


def test_only_the_loop_makes_the_host_wait():
    syncs = {}
    for impl in ("loop", "capacity", "grouped_mm"):
        workload = workload_of(job_of(BY_ID["moe.layer"], case_of("moe.layer", impl=impl, load="uniform")))
        workload.prepare()
        syncs[impl] = next(c.value for c in workload.counters() if c.metric == "host_syncs")
    assert syncs["loop"] >= 8
    assert syncs["grouped_mm"] == 0


def test_rungs_differ_in_operations_by_what_their_names_say():
    ops, kept = {}, {}
    for case in BY_ID["gpt.ladder"].cases(Preset.CPU):
        if case.not_applicable:
            continue
        workload = workload_of(job_of(BY_ID["gpt.ladder"], case))
        workload.prepare()
        counters = {c.metric: c.value for c in workload.counters()}
        rung = case.variant["rung"][:3]
        ops[rung], kept[rung] = counters["ops_per_step"], counters["activation_bytes"]
    assert ops["r01"] == ops["r00"] + 4, "the mask is made (ones, tril) in each of two layers"
    assert ops["r03"] < ops["r01"] - 200, "one fused update instead of several operations a parameter"
    assert ops["r06"] < ops["r05"] - 100, "LayerNorm and GELU are one operation each"
    assert kept["r07"] < kept["r06"], "fused attention keeps no attention matrix"
    assert 1.5 < kept["r10"] / kept["r09"] <= 2.0, "twice the batch; the weights' bf16 copies stay as they are"


def test_rungs_in_single_precision_train_alike():
    from benchmarks.harness.timing.marks import NoMarks

    curves = {}
    for case in BY_ID["gpt.ladder"].cases(Preset.CPU):
        if case.not_applicable or case.variant["rung"][:3] not in ("r00", "r01", "r03", "r05", "r06", "r07"):
            continue
        workload = workload_of(job_of(BY_ID["gpt.ladder"], case))
        workload.prepare()
        for _ in range(8):
            workload.step(NoMarks())
        curves[case.variant["rung"][:3]] = [float(loss) for loss in workload.training.losses]
    first = curves["r00"]
    assert first[-1] < first[0], "it learns"
    for rung in ("r01", "r03"):
        assert curves[rung] == pytest.approx(first, rel=1e-4)
    for rung in ("r05", "r06", "r07"):
        assert curves[rung] == pytest.approx(first, rel=2e-2)


def test_the_flop_formula_agrees_with_torchs_counter_where_only_linear_layers_count():
    from torch.utils.flop_counter import FlopCounterMode

    from benchmarks.workloads.gpt import model as gpt_model
    from benchmarks.workloads.gpt.config import GptConfig

    config = GptConfig(n_layer=2, n_head=4, n_embd=64, block_size=32, vocab_size=96, batch_size=2)
    model = gpt_model.Gpt(config, gpt_model.NAIVE)
    tokens = torch.randint(0, 96, (2, 32))
    with FlopCounterMode(display=False) as counter:
        model(tokens).sum().backward()
    # The from-scratch path does full attention as plain products, which the counter sees.
    assert counter.get_total_flops() == config.tokens_per_step * config.flop_per_token()


def test_published_sizes_give_the_published_flop():
    from benchmarks.catalog.gpt import GPT2
    from benchmarks.workloads.gpt.config import GptConfig

    config = GptConfig(**GPT2, batch_size=1)
    assert config.matmul_parameters == 123_568_128
    assert config.flop_per_token() == 854_654_976
    assert config.flop_per_token(causal=True) == pytest.approx(798.0e6, rel=1e-4)
