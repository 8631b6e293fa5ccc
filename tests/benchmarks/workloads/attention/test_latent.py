"""Packed, latent and paged attention: kernels of a GPU spelled out on a CPU, wrong ones found, exact formulas."""

from __future__ import annotations

import contextlib

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from benchmarks.harness.workload import Job, NotApplicable  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads.attention import latent as attention_latent  # noqa: E402
from benchmarks.workloads.attention.latent import LatentDecoding, LatentTraining  # noqa: E402
from benchmarks.workloads.attention.packed import PackedAttention, document_lengths  # noqa: E402
from benchmarks.workloads.attention.paged import PagedDecoding  # noqa: E402

CLASSES = {
    "attn.packed": PackedAttention,
    "attn.mla": LatentTraining,
    "attn.mla_decode": LatentDecoding,
    "attn.paged": PagedDecoding,
}


def workload(name, preset=Preset.CPU, **changed):
    config = {**BY_ID[name].cases(preset)[0].config, **changed, "device": "cpu"}
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1234, "tasks": ()}
    return CLASSES[name](Job(benchmark=name, workload="", variant={}, config=config, preset="cpu", **fields))


def test_documents_fill_the_tokens_many_short_and_few_long():
    lengths = document_lengths(32768, 8192, 1234)
    assert sum(lengths) == 32768 and max(lengths) <= 8192
    assert sorted(lengths)[len(lengths) // 2] < sum(lengths) / len(lengths), "the median is below the mean"
    assert lengths == document_lengths(32768, 8192, 1234) != document_lengths(32768, 8192, 1235)


def test_flop_of_packed_documents_count_every_document_by_itself():
    made = workload("attn.packed", how="loop", heads=1, head_dim=1)
    assert made.work.phase_flop["forward"] == 4 * sum(n * (n + 1) / 2 for n in made.lengths)
    waste = next(c.value for c in made.further_counters(made.inputs(reduced=True)) if c.metric == "padding_waste")
    assert waste == pytest.approx(1 - sum(made.lengths) / len(made.lengths) / max(made.lengths))


@pytest.mark.parametrize("how", ["loop", "padded"])
def test_an_attention_that_looks_into_the_document_before_fails(monkeypatch, how):
    made = workload("attn.packed", how=how)
    assert made.check().failed is None

    def across(tensors):
        q, k, v = (t.transpose(0, 1)[None] for t in tensors.learned.values())
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1)

    monkeypatch.setattr(made, "function", across)
    assert made.check().failed.name == "output_relative_error"


def test_flex_takes_keys_that_are_wider_than_values():
    made = workload("attn.mla", backend="flex")
    drawn = made.inputs(reduced=True)
    with torch.no_grad():
        assert torch.allclose(made.function(drawn), made.reference(drawn), atol=1e-5)


def test_a_backend_without_a_kernel_for_the_widths_is_not_applicable(monkeypatch):
    def refuses(backend):
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setattr(attention_latent, "forced", refuses)
    with pytest.raises(NotApplicable, match="sdpa_cudnn has no kernel for widths 48 and 32"):
        workload("attn.mla", backend="sdpa_cudnn").check()


def test_a_backend_that_falls_back_is_told(monkeypatch):
    monkeypatch.setattr(attention_latent, "forced", lambda backend: contextlib.nullcontext())
    assert workload("attn.mla", backend="sdpa_efficient").check().failed.name == "silent_fallback"


def test_latent_decoding_is_scaled_by_the_width_that_was_trained(monkeypatch):
    made = workload("attn.mla_decode", how="products")
    assert made.check().failed is None
    reference = made.reference
    monkeypatch.setattr(made, "reference", reference)
    monkeypatch.setattr(made, "plain", lambda q, cache: torch.softmax(q @ cache.mT, -1) @ cache[..., : made.V])
    assert made.check().failed is not None


def test_latent_decoding_at_full_size_is_near_the_ridge():
    work = workload("attn.mla_decode", Preset.FULL, batch_size=2, length=128).work
    assert work.flop / work.bytes == pytest.approx(2 * 128 * (576 + 512) / (576 * 2))


@pytest.mark.parametrize("how", ["gather", "flex"])
def test_pages_are_found_wherever_they_lie(how):
    made = workload("attn.paged", how=how)
    found = made.check()
    assert found.failed is None, found.sentence()
    assert {"output_relative_error", "reads_other_pages"} <= {finding.name for finding in found.findings}


def test_a_decoding_that_reads_the_pool_in_order_fails(monkeypatch):
    made = workload("attn.paged", how="gather")
    in_order = made._gathered
    monkeypatch.setattr(
        made, "_gathered", lambda pool, table: in_order(pool, torch.arange(table.numel()).view_as(table))
    )
    assert made.check().failed is not None


def test_a_decoding_that_reads_past_the_end_fails(monkeypatch):
    made = workload("attn.paged", how="gather")
    attention = F.scaled_dot_product_attention

    def of_everything(q, k, v, attn_mask, enable_gqa):
        return attention(q, k, v, enable_gqa=enable_gqa)

    monkeypatch.setattr(F, "scaled_dot_product_attention", of_everything)
    assert made.check().failed is not None


def test_bytes_of_paged_decoding_are_those_that_sequences_hold():
    work = workload("attn.paged").work
    held = 256 + (256 - 85 // 2) + (256 - 85) + 256
    assert work.bytes == 2 * held * 2 * 64 * 4
