"""The register: what is listed, found, filtered, and what an unknown name is told."""

import json
import subprocess
import sys

import pytest

from benchmarks import registry
from benchmarks.registry import BY_ID, UnknownBenchmark, UnknownVariant, find, parse_filters, select
from benchmarks.spec import Preset, slug_of

ROOT_COMMAND = [sys.executable, "-P", "-m", "benchmarks"]


def test_the_parent_process_imports_no_torch():
    code = "import sys, benchmarks.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_id_is_told_the_nearest_and_all_known_ones():
    with pytest.raises(UnknownBenchmark) as caught:
        find("gpt.trian")
    assert "did you mean gpt.train?" in str(caught.value)
    assert all(name in str(caught.value) for name in BY_ID)


def test_a_glob_finds_a_family_and_nothing_else():
    assert {b.family for b in find("gpt.*")} == {"gpt"}


def test_unknown_patterns_do_not_hide_the_known_ones():
    found, unknown = registry.find_all(["gpt.train", "nonsense"])
    assert [b.id for b in found] == ["gpt.train"]
    assert len(unknown) == 1


def test_variants_of_every_preset_are_distinct_and_have_distinct_file_names():
    for benchmark in BY_ID.values():
        for preset in Preset:
            variants = [case.variant for case in benchmark.cases(preset)]
            assert variants, f"{benchmark.id} has no variant with preset {preset}"
            assert len({slug_of(v) for v in variants}) == len(variants)


def test_a_variant_filter_takes_values_globs_and_lists():
    ladder = find("gpt.ladder")
    chosen = select(ladder, Preset.CPU, parse_filters(["rung=r00*,r07_flash_attention"]))
    assert [s.case.variant["rung"] for s in chosen] == ["r00_fp32_from_scratch", "r07_flash_attention"]


def test_a_filter_that_fits_nothing_is_told_what_there_is():
    with pytest.raises(UnknownVariant, match="rung=r07_flash_attention"):
        select(find("gpt.ladder"), Preset.CPU, parse_filters(["rung=r99"]))


@pytest.mark.parametrize("text", ["rung", "=x", "rung="])
def test_a_filter_that_is_no_pair_is_refused(text):
    with pytest.raises(UnknownVariant, match="key=value"):
        parse_filters([text])


def test_every_benchmark_explains_itself():
    for benchmark in BY_ID.values():
        assert len(benchmark.meaning) > 80, benchmark.id
        assert benchmark.formula and benchmark.bound, benchmark.id
        assert all(r.source for r in benchmark.references), benchmark.id


def test_list_as_json_has_every_benchmark_and_preset():
    done = subprocess.run([*ROOT_COMMAND, "list", "--json"], capture_output=True, text=True, check=True)
    listed = json.loads(done.stdout)
    assert [b["id"] for b in listed["benchmarks"]] == list(BY_ID)
    assert all(set(b["presets"]) == {"cpu", "smoke", "full"} for b in listed["benchmarks"])


def test_describe_gives_formula_bound_and_figures_with_their_sources():
    done = subprocess.run([*ROOT_COMMAND, "describe", "gpt.ladder"], capture_output=True, text=True, check=True)
    for text in ("6·N_mm + 12·L·C·T", "854.65 MFLOP", "142,156", "source:", "r10_largest_batch"):
        assert text in done.stdout


def test_describe_of_an_unknown_id_is_a_wrong_call():
    done = subprocess.run([*ROOT_COMMAND, "describe", "gpt.lader"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean gpt.ladder?" in done.stderr
