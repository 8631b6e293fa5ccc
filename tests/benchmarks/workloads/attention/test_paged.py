"""Decoding by a block table: what the kernel is handed, spelled out on a CPU; and releases of torch without it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness.timing.marks import NoMarks  # noqa: E402
from benchmarks.harness.workload import Job, NotApplicable  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads.attention.dense import plain_attention  # noqa: E402
from benchmarks.workloads.attention.paged import PagedDecoding  # noqa: E402

KERNEL = "torch.nn.attention.varlen.varlen_attn"
CASE = next(case for case in BY_ID["attn.paged"].cases(Preset.CPU) if case.variant["how"] == "block_table")


def workload():
    config = {**CASE.config, "page": 32}
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1234, "tasks": ()}
    return PagedDecoding(Job(benchmark="", workload="", variant={}, config=config, preset="cpu", **fields))


def spelled_out(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, *, seqused_k, block_table, enable_gqa):
    """torch's kernel by its documentation: pages (pages, tokens, heads, width), a table of them for each sequence."""
    assert enable_gqa and max_q == 1 and k.is_contiguous() and v.is_contiguous()
    assert cu_seq_q.dtype == cu_seq_k.dtype == seqused_k.dtype == block_table.dtype == torch.int32
    assert (cu_seq_k.diff() == seqused_k).all() and max_k >= int(seqused_k.max())
    rows = []
    for number, (pages, used) in enumerate(zip(block_table.long(), seqused_k.tolist(), strict=True)):
        keys, values = (pool[pages].flatten(0, 1)[:used].transpose(0, 1)[None] for pool in (k, v))
        rows.append(plain_attention(q[number][None, :, None], keys, values, None)[0, :, 0])
    return torch.stack(rows)


def test_the_kernel_is_handed_pages_and_tables_as_it_documents_them(monkeypatch):
    monkeypatch.setattr(KERNEL, spelled_out)
    made = workload()
    found = made.check()
    assert found.failed is None, found.sentence()
    made.prepare()
    made.step(NoMarks())
    assert made.output.shape == (made.B, made.H, 1, made.D)


def test_a_kernel_that_reads_the_next_page_of_the_pool_instead_fails_the_check(monkeypatch):
    def in_a_row(q, k, v, *sizes, block_table, **how):
        following = torch.arange(block_table.shape[1]) + block_table[:, :1]
        return spelled_out(q, k, v, *sizes, block_table=(following % k.shape[0]).int(), **how)

    monkeypatch.setattr(KERNEL, in_a_row)
    assert workload().check().failed.name == "output_relative_error"


def test_a_torch_whose_kernel_takes_no_table_is_not_applicable(monkeypatch):
    monkeypatch.setattr(KERNEL, lambda q, k, v, cu_seq_q, cu_seq_k, max_q, max_k: q)
    with pytest.raises(NotApplicable, match="takes no block_table"):
        workload()


def test_a_tables_pages_are_of_a_size_that_flash_attention_takes():
    pages = {
        case.config["page"]
        for preset in (Preset.SMOKE, Preset.FULL)
        for case in BY_ID["attn.paged"].cases(preset)
        if case.variant["how"] == "block_table"
    }
    assert all(page % 256 == 0 for page in pages) and pages
