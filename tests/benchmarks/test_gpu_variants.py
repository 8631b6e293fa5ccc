"""What only a GPU runs at full size, in its own arithmetic on a CPU; and that every variant of the table is there."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness.counters import count_operations  # noqa: E402
from benchmarks.harness.timing.marks import NoMarks  # noqa: E402
from benchmarks.harness.workload import Job, NotApplicable  # noqa: E402
from benchmarks.registry import (  # noqa: E402
    BY_ID,
    find,
    for_ranks,
    select,
)
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads import fp8  # noqa: E402
from benchmarks.workloads.attention import dense as attention  # noqa: E402
from benchmarks.workloads.collectives import Collective  # noqa: E402
from benchmarks.workloads.gpt import training as gpt  # noqa: E402
from benchmarks.workloads.gpt.config import GptConfig  # noqa: E402
from benchmarks.workloads.gpt.distributed import GptDistributed  # noqa: E402
from benchmarks.workloads.llama.block import LlamaBlock  # noqa: E402
from benchmarks.workloads.moe import layer as moe  # noqa: E402
from benchmarks.workloads.moe.inference import MoeInference  # noqa: E402

TABLE = {
    "ceiling.gemm": ("dtype", {"bf16", "tf32", "fp8", "fp8_fast"}),
    "ceiling.memory": ("kind", {"copy", "triad", "host_to_device", "device_to_host"}),
    "gpt.ddp": ("ranks", {1, 2, 4, 8}),
    "llama.block": ("compile", {"eager", "default", "max-autotune-no-cudagraphs"}),
    "moe.layer": ("impl", {"loop", "capacity", "grouped_mm"}),
    "moe.model": ("compile", {"eager", "cuda_graph", "default", "reduce-overhead", "max-autotune"}),
    "attn.train": ("backend", {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "sdpa_math", "flex", "best"}),
    "coll.all_reduce": ("transport", {None, "nvls_on", "nvls_off", "symm_one_shot", "symm_two_shot", "symm_multimem"}),
    "coll.all_gather": ("transport", {None, "nvls_on", "nvls_off", "symm_multimem"}),
    "coll.reduce_scatter": ("transport", {None, "nvls_on", "nvls_off", "symm_one_shot"}),
    "compile.cold": ("mode", {"default", "reduce-overhead", "max-autotune-no-cudagraphs"}),
}


@pytest.mark.parametrize("name", TABLE)
def test_every_variant_of_the_table_is_registered(name):
    key, wanted = TABLE[name]
    assert {case.variant.get(key) for case in BY_ID[name].cases(Preset.FULL)} == wanted


def test_masks_shapes_loads_and_formats_of_the_table_are_registered():
    def values(name, key):
        return {case.variant.get(key) for case in BY_ID[name].cases(Preset.FULL)}

    assert values("attn.train", "mask") == {"full", "causal", "window", "document"}
    assert values("attn.train", "head_dim") == {64, 128, 256}
    assert values("attn.decode", "backend") == {None, "flex"}
    assert values("attn.decode", "launch") == {None, "graph"}
    assert values("moe.layer", "load") == {"uniform", "zipf", "hot"}
    assert values("moe.layer", "shape") == {"mixtral", "olmoe", "deepseek_v3"}
    assert values("llama.block", "dtype") == {"bf16", "fp8", "fp8_fast"}
    assert values("gpt.ddp", "strategy") == {"none", "ddp", "fsdp2"}
    assert values("gpt.ddp", "overlap") == {"on", "off"}
    assert {c.config.get("shared") for c in BY_ID["moe.layer"].cases(Preset.FULL)} == {None, 1}


def test_what_a_cpu_cannot_run_is_registered_there_with_a_sentence():
    lacking = {"llama.block": "fp8", "moe.model": "cuda_graph", "attn.decode": "flex", "coll.all_reduce": "nvls_on"}
    for name, word in lacking.items():
        cases = [case for case in BY_ID[name].cases(Preset.CPU) if word in map(str, case.variant.values())]
        assert len(cases) == 1
        assert len(cases[0].not_applicable.split()) > 5


def job(benchmark="moe.layer", **config):
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1234, "tasks": ()}
    whole = {"dtype": "fp32", "device": "cpu", **config}
    return Job(benchmark=benchmark, workload="", variant={}, config=whole, preset="cpu", **fields)


# products in eight bits

LLAMA = {"width": 64, "heads": 2, "kv_heads": 1, "inner": 96, "context": 32, "batch_size": 1, "compile": "eager"}


def test_the_fp8_block_is_as_good_as_its_rounding_spelled_out():
    found = LlamaBlock(job(**LLAMA, dtype="bf16", fp8=True)).check()
    assert found.failed is None, found.sentence()
    output = next(finding for finding in found.findings if finding.name == "output_relative_error")
    assert output.value > 0.01, "so large an error shows that eight bits were used at all"


@pytest.mark.parametrize(("lost", "failed"), [(0.5, "output_relative_error"), (0.9, "output_relative_error")])
def test_an_fp8_product_that_scales_wrongly_fails_the_check(monkeypatch, lost, failed):
    workload = LlamaBlock(job(**LLAMA, dtype="bf16", fp8=True))
    workload.product = lambda x, w: fp8.product(x, w) * lost
    assert workload.check().failed.name == failed


def test_gradients_of_an_fp8_product_take_the_wider_range():
    x = torch.randn(16, 32, requires_grad=True)
    w = torch.randn(32, 16, requires_grad=True)
    upstream = torch.zeros(16, 16)
    upstream[0, 0], upstream[1, 1] = 1.0, 2.0**-20
    fp8.product(x, w).backward(upstream)
    assert torch.allclose(x.grad[0], w[:, 0], rtol=0.1, atol=0.05)
    # The format of the forward pass would round this row to nothing.
    assert torch.allclose(x.grad[1] * 2.0**20, w[:, 1], rtol=0.1, atol=0.05)


def test_fast_accumulation_is_of_the_forward_product_alone(monkeypatch):
    asked, scaled = [], torch._scaled_mm

    def noted(*operands, use_fast_accum=False, **how):
        asked.append(use_fast_accum)
        return scaled(*operands, **how)

    monkeypatch.setattr(torch, "_scaled_mm", noted)
    x, w = torch.randn(16, 32, requires_grad=True), torch.randn(32, 16, requires_grad=True)
    fp8.product(x, w, fast=True).sum().backward()
    assert asked == [True, False, False]


def test_the_block_with_fast_accumulation_is_held_to_the_bits_that_it_keeps():
    """It may be off by what they lose, and not by twice as much."""
    limits = []
    for fast in (False, True):
        found = LlamaBlock(job(**LLAMA, dtype="bf16", fp8=True, fast_accumulation=fast)).check()
        assert found.failed is None, found.sentence()
        limits.append({finding.name: finding.limit for finding in found.findings})
    exact, fast_ones = limits
    assert all(fast_ones[name] == pytest.approx(exact[name] + fp8.FAST_ACCUMULATION_ERROR) for name in exact)
    workload = LlamaBlock(job(**LLAMA, dtype="bf16", fp8=True, fast_accumulation=True))
    workload.product = lambda x, w: fp8.product(x, w) * 0.8
    assert workload.check().failed is not None


# attention


def inputs_of(workload):
    drawn = workload.inputs(reduced=True)
    return drawn, workload.reference(drawn)


@pytest.mark.parametrize("mask", ["full", "causal", "window", "document"])
def test_flex_masks_are_those_of_the_reference(mask):
    sizes = {"batch_size": 2, "heads": 4, "kv_heads": 2, "length": 96, "head_dim": 16, "window": 20}
    drawn, wanted = inputs_of(made := attention.AttentionTraining(job(**sizes, mask=mask, backend="flex")))
    assert torch.allclose(made.function(drawn), wanted, atol=1e-5)


def test_flex_decoding_reads_nothing_past_the_end_of_a_sequence():
    sizes = {"batch_size": 2, "heads": 4, "kv_heads": 2, "length": 64, "head_dim": 16, "backend": "flex"}
    drawn, wanted = inputs_of(made := attention.AttentionDecoding(job(**sizes)))
    assert torch.allclose(made.function(drawn), wanted, atol=1e-5)
    past = ~drawn.constant["allowed"][:, :, 0, :, None]
    changed = {n: torch.where(past, 9.0, t) if n != "q" else t for n, t in drawn.learned.items()}
    assert torch.equal(made.function(replace(drawn, learned=changed)), made.function(drawn))


def test_a_mask_is_made_once_and_not_in_every_call():
    """Making one copies to the device and waits for it: that was in every timed step of FlexAttention."""
    sizes = {"batch_size": 1, "heads": 2, "kv_heads": 2, "length": 96, "head_dim": 16, "window": 20}
    made = attention.AttentionTraining(job(**sizes, mask="document", backend="flex"))
    drawn = made.inputs(reduced=True)
    made.function(drawn)
    assert count_operations(lambda: made.function(drawn)).by_name == {"flex_attention": 1}


@pytest.mark.parametrize("name", ["attn.train", "attn.decode"])
def test_on_a_gpu_a_check_is_long_enough_to_run_the_kernel_that_is_timed(name):
    """FlexAttention takes another kernel below 128 queries, and another again for lengths that are no multiple."""
    timed = {case.config["length"] for preset in (Preset.SMOKE, Preset.FULL) for case in BY_ID[name].cases(preset)}
    checked = {min(length, attention.CHECK_LENGTHS["cuda"]) for length in timed}
    assert min(checked) >= 128
    assert all(length % 128 == 0 for length in timed | checked)


def best(monkeypatch, **milliseconds):
    sizes = {"batch_size": 1, "heads": 2, "kv_heads": 2, "length": 64, "head_dim": 16, "mask": "causal"}
    monkeypatch.setitem(attention.CANDIDATES, "cpu", tuple(milliseconds))
    return attention.AttentionTraining(job(**sizes, backend="best"))


def test_the_best_backend_is_found_by_measuring_and_named_in_the_notes(monkeypatch):
    made = best(monkeypatch, sdpa_cudnn=None, sdpa_flash=1.0, sdpa_math=1.0)
    assert made.check().failed is None
    notes = made.notes()
    ran = {name: ms for name, ms in notes["candidates_ms"].items() if ms is not None}
    assert notes["candidates_ms"]["sdpa_cudnn"] is None, "a backend that refuses the shape is not chosen, nor an error"
    assert set(ran) == {"sdpa_flash", "sdpa_math"}
    assert ran[notes["chosen_backend"]] == min(ran.values())


def test_a_pinned_backend_is_kept_though_another_is_quicker_and_the_notes_say_so(monkeypatch):
    made = best(monkeypatch, sdpa_flash=1.0, sdpa_math=1.0)
    monkeypatch.setattr(type(made), "_pinned", "sdpa_math")
    times = {"sdpa_flash": 1.0, "sdpa_math": 2.0}
    monkeypatch.setattr(attention, "_tried", lambda way, inputs, device: times[way.args[0]])
    assert made.check().failed is None
    assert made.notes()["chosen_backend"] == made.notes()["pinned_backend"] == "sdpa_math"
    assert made.notes()["remark"] == "sdpa_flash is clearly quicker than the pinned sdpa_math"


def test_a_pinned_backend_that_does_not_run_gives_way_and_the_notes_say_so(monkeypatch):
    made = best(monkeypatch, sdpa_flash=1.0, sdpa_cudnn=None)
    monkeypatch.setattr(type(made), "_pinned", "sdpa_cudnn")
    made.prepare()
    assert made.notes()["chosen_backend"] == "sdpa_flash"
    assert "sdpa_cudnn is pinned and does not run at this shape" in made.notes()["remark"]


def test_a_process_that_is_told_what_the_first_one_chose_tries_nothing(monkeypatch):
    made = best(monkeypatch, sdpa_flash=1.0, sdpa_math=1.0)
    made.job = replace(made.job, extra={"chosen_backend": "sdpa_math"})
    made.prepare()
    assert made.notes() == {"chosen_backend": "sdpa_math"}


def test_where_no_backend_runs_the_best_one_is_not_applicable(monkeypatch):
    with pytest.raises(NotApplicable, match="none of sdpa_cudnn, sdpa_efficient runs"):
        best(monkeypatch, sdpa_cudnn=None, sdpa_efficient=None).check()


# experts

MOE = {"width": 32, "expert_width": 16, "experts": 8, "top_k": 2, "tokens": 64, "load": "uniform", "shared": 2}


@pytest.mark.parametrize("impl", ["loop", "capacity", "grouped_mm"])
def test_shared_experts_are_added_for_every_token(impl):
    made = moe.MoeLayer(job(**MOE, impl=impl))
    assert made.check().failed is None
    assert made.work.flop == 3 * 64 * (2 * 32 * 8 + 6 * (2 + 2) * 32 * 16)
    made.prepare()
    assert "forward_shared_ms" in {counter.metric for counter in made.counters()}


@pytest.mark.parametrize(("tokens", "touched"), [(1, 8.0), (16, 56.4), (256, 64.0)])
def test_bytes_of_a_generating_layer_are_the_weights_of_the_experts_that_some_token_chose(tokens, touched):
    olmoe = {"width": 2048, "expert_width": 1024, "experts": 64, "top_k": 8, "tokens": tokens}
    made = MoeInference(job("moe.infer", **olmoe, load="uniform", impl="grouped_mm", dtype="bf16"))
    weights = made.work.bytes - 2 * (2048 * 64 + 2 * tokens * 2048)
    assert weights / (3 * 2048 * 1024 * 2) == pytest.approx(touched, abs=0.05)
    generator = torch.Generator().manual_seed(0)
    bias = moe.load_bias("uniform", tokens, 64, generator)
    assert bias.topk(8).indices.unique().numel() == pytest.approx(touched, abs=5)
    assert made.work.flop == tokens * (2 * 2048 * 64 + 6 * 8 * 2048 * 1024)


def test_a_layer_that_forgets_its_shared_experts_fails_the_check(monkeypatch, tmp_path):
    (tmp_path / "forgetful.py").write_text(
        "from benchmarks.harness.timing.marks import NoMarks\n"
        "from benchmarks.workloads.moe import layer as moe\n"
        "def layer(x, bias, weights, config):\n"
        "    return moe.grouped(x, bias, weights, config, NoMarks())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    made = moe.MoeLayer(replace(job(**MOE, impl="grouped_mm"), implementation="forgetful:layer"))
    assert made.check().failed.name == "output_relative_error"


def test_a_check_takes_fewer_experts_where_double_precision_of_all_would_fill_the_device(monkeypatch):
    each = 3 * MOE["width"] * MOE["expert_width"]
    monkeypatch.setattr(moe, "CHECK_WEIGHTS", 5 * each)
    made = moe.MoeLayer(job(**MOE, impl="grouped_mm"))
    assert made.inputs(reduced=True).learned["gate"].shape[0] == 5
    assert made.inputs(reduced=False).learned["gate"].shape[0] == 8
    assert made.check().failed is None


def test_the_loop_writes_each_experts_gradient_once():
    """Taken by its index, each of 256 experts would write a gradient as large as all of them, zero but for its own."""
    made = moe.MoeLayer(job(**MOE, impl="loop"))
    made.prepare()
    ran = count_operations(lambda: made.step(NoMarks())).by_name
    assert ran["select_backward"] == 0
    assert ran["stack"] == 3, "gate, up and down, all experts at once"
    assert ran["index_add_"] == MOE["experts"] and ran["index_add"] == 0


def test_rows_are_dispatched_by_a_gather_whose_backward_pass_adds_them_as_they_come():
    """Indexing would sort them first, in its backward pass."""
    made = moe.MoeLayer(job(**MOE, impl="grouped_mm"))
    made.prepare()
    ran = count_operations(lambda: made.step(NoMarks())).by_name
    assert ran["index_select"] > 0 and ran["index_add_"] + ran["index_add"] >= 2, "there and back, forward and backward"
    shares = MOE["tokens"] * MOE["top_k"]
    assert written_by_index(made) == [(shares, 1)], "the routes' weights, and no rows"


def written_by_index(made):
    """Shapes of what a step writes by `index_put`, which sorts its rows."""
    shapes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "index_put" in func.overloadpacket.__name__:
                shapes.append(tuple(args[0].shape))
            return func(*args, **(kwargs or {}))

    with Watch():
        made.step(NoMarks())
    return shapes


# the largest batch


@pytest.mark.parametrize(("gigabytes", "sequences"), [(150.1, 128), (1500, 128), (42.4, 32), (1, 16)])
def test_the_largest_batch_leaves_room_for_the_losss_backward_pass(gigabytes, sequences):
    """By ten bytes a word of the vocabulary it took 12.07, and more memory than there is."""
    config = GptConfig(
        n_layer=12, n_head=12, n_embd=768, block_size=1024, vocab_size=50304, batch_size=16, dtype="bf16"
    )
    found = gpt.sequences_that_fit(gigabytes * 1e9, config)
    assert found == sequences
    if found > config.batch_size:
        assert found * config.block_size * 12.07 * config.vocab_size < 0.9 * gigabytes * 1e9


# ranks


def test_one_rank_is_where_the_scaling_curve_begins():
    case = next(case for case in BY_ID["gpt.ddp"].cases(Preset.CPU) if case.variant["ranks"] == 1)
    sizes = {"n_embd": 32, "n_head": 2, "block_size": 16, "vocab_size": 64}
    made = GptDistributed(job("gpt.ddp", **{**case.config, **sizes}))
    found = {value.metric: value.value for value in made.measure()}
    assert made.correctness().failed is None
    assert found["exposed_communication_ms"] == found["collective_calls"] == 0
    assert found["step_alone_ms"] > 0
    assert "scaling_efficiency" not in found, "one rank against itself states noise"


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_ranks_train_compiled_and_in_half_precision(strategy):
    case = BY_ID["gpt.ddp"].cases(Preset.CPU)[0]
    sizes = {"n_embd": 32, "n_head": 2, "block_size": 16, "vocab_size": 64, "steps": 2, "dtype": "bf16"}
    way = {"ranks": 2, "strategy": strategy, "compile": "aot_eager"}
    made = GptDistributed(job("gpt.ddp", **{**case.config, **sizes, **way}))
    made.measure()
    assert made.correctness().failed is None
    assert all(rank["compiled_regions"] > 0 for rank in made.by_rank)
    made.by_rank[1]["compiled_regions"] = 0
    assert made.correctness().failed.name == "ranks_that_ran_eagerly"


def test_under_torchrun_one_rank_is_measured_by_one_rank_only():
    chosen = select(find("gpt.ddp"), Preset.CPU, {})
    one, two = ({s.case.variant["strategy"]: s.case for s in for_ranks(chosen, ranks)} for ranks in (1, 2))
    assert one["none"].not_applicable is None
    assert "one rank" in one["ddp"].not_applicable
    assert "without torchrun" in two["none"].not_applicable


def test_a_latency_is_stated_with_the_hosts_part_and_without_it():
    case = BY_ID["coll.all_reduce"].cases(Preset.CPU)[0]
    made = Collective(job("coll.all_reduce", **{**case.config, "sizes": [2**10, 2**30]}))
    alike = {"wrong": 0, "seconds": [[3e-5] * 3, [0.0152] * 3]}
    made.by_rank = [{**alike, "queued": [8e-6, 9e-6, 8e-6]}, {**alike, "queued": [7e-6, 7e-6, 9e-6]}]
    found = {value.metric: value for value in made.figures()}
    assert found["latency_us"].value == pytest.approx(30)
    assert found["latency_queued_us"].value == pytest.approx(9), "of each sample the slowest rank's"
    made.by_rank = [{**alike, "queued": []}] * 2
    assert "latency_queued_us" not in {value.metric for value in made.figures()}, "over gloo the host is all there is"


def test_a_sweep_is_kept_as_a_curve():
    case = BY_ID["coll.all_reduce"].cases(Preset.CPU)[0]
    made = Collective(job("coll.all_reduce", **{**case.config, "sizes": [2**10, 2**30]}))
    made.by_rank = [{"wrong": 0, "seconds": [[1e-5] * 3, [0.0152] * 3]}] * 2
    made.figures()
    curve = made.notes()["curve"]
    assert [point["bytes"] for point in curve] == [2**10, 2**30]
    assert curve[1]["busbw_gb_per_s"] == pytest.approx(70.6, abs=0.05)
    assert curve[1]["us"] == pytest.approx(15_200)
