"""The register: what is listed, found, filtered, and what an unknown name is told."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cli import main
from benchmarks.listing import describe
from benchmarks.registry import BY_ID, Selected, UnknownBenchmark, UnknownVariant, choose, find, parse_filters, select
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
    found, unknown = choose(["gpt.train", "nonsense"], Preset.CPU, {})
    assert [one.benchmark.id for one in found] == ["gpt.train"]
    assert len(unknown) == 1


def test_every_case_has_a_name_that_chooses_it_alone():
    for benchmark in BY_ID.values():
        for case in benchmark.cases(Preset.FULL):
            one = Selected(benchmark, case)
            assert choose([one.name], Preset.FULL, {}) == ((one,), ()), one.name


def test_names_of_cases_take_globs_and_add_up_once_each():
    chosen, _ = choose(["gpt.ladder/r07*", "gpt.ladder/r0[78]_*", "ceiling.launch"], Preset.FULL, {})
    names = ["gpt.ladder/r07_flash_attention", "gpt.ladder/r08_compile", "ceiling.launch/add_one"]
    assert [one.name for one in chosen] == names


def test_a_case_that_a_benchmark_does_not_have_is_told_the_known_ones():
    with pytest.raises(UnknownVariant) as told:
        choose(["gpt.ladder/r99"], Preset.CPU, {})
    assert str(told.value).startswith("no case 'r99' of gpt.ladder with preset cpu; known: gpt.ladder/r00_fp32")


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
        assert benchmark.references, f"{benchmark.id} has no figure to stand beside"
        assert all(r.source and any(ch.isdigit() for ch in r.figure) for r in benchmark.references), benchmark.id


def test_list_as_json_has_every_benchmark_and_preset():
    done = subprocess.run([*ROOT_COMMAND, "list", "--json"], capture_output=True, text=True, check=True)
    listed = json.loads(done.stdout)
    assert [b["id"] for b in listed["benchmarks"]] == list(BY_ID)
    assert all(set(b["presets"]) == {"cpu", "smoke", "full"} for b in listed["benchmarks"])


def test_describe_gives_formula_bound_and_figures_with_their_sources():
    done = subprocess.run([*ROOT_COMMAND, "describe", "gpt.ladder"], capture_output=True, text=True, check=True)
    for text in ("6·N_mm + 12·L·C·T", "854.65 MFLOP", "142,156", "source:", "r10_largest_batch"):
        assert text in done.stdout


@pytest.mark.parametrize("name", list(BY_ID))
def test_describe_says_meaning_formula_bound_figures_and_variants_of_each(name):
    benchmark, page = BY_ID[name], describe(BY_ID[name])
    assert page.startswith(f"{name}: {benchmark.title}")
    for part in (benchmark.meaning, f"Formula: {benchmark.formula}", f"Bound: {benchmark.bound}", "Published figures:"):
        assert part in page
    for reference in benchmark.references:
        assert f"{reference.figure}\n    source: {reference.source}" in page
    assert (benchmark.signature or "Built-in:") in page
    assert all(f"  {preset}: " in page for preset in Preset)


WRONG_CALLS = {
    "no command": ([], "COMMAND"),
    "unknown command": (["mesure"], "invalid choice: 'mesure'"),
    "run of nothing": (["run"], "ID|GLOB"),
    "describe of nothing": (["describe"], "the following arguments are required: id"),
    "unknown preset": (["run", "gpt.train", "--preset", "huge"], "choose from"),
    "no processes": (["run", "gpt.train", "--processes", "0"], "--processes is 0; at least 1 is needed"),
    "processes in words": (["run", "gpt.train", "--processes", "two"], "invalid int value: 'two'"),
    "precision in percent": (["run", "gpt.train", "--precision", "5"], "it is a fraction, e.g. 0.01"),
    "no such variant": (["run", "gpt.ladder", "--variant", "rung=r99"], "rung=r07_flash_attention"),
    "variant without value": (["run", "gpt.ladder", "--variant", "rung"], "is not key=value"),
    "closed to plug-ins": (["run", "ceiling.gemm", "--implementation", "a:b"], "takes no --implementation; these do:"),
    "no time at all": (["run", "gpt.train", "--timeout", "0"], "--timeout is 0"),
    "glob of nothing": (["describe", "nothing.*"], "unknown benchmark 'nothing.*'"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_exit_2_with_a_sentence_that_names_what_was_wrong(name, capsys):
    arguments, said = WRONG_CALLS[name]
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    captured = capsys.readouterr()
    assert code == 2
    assert said in captured.err
    assert captured.out == ""


def test_describe_of_an_unknown_id_is_a_wrong_call():
    done = subprocess.run([*ROOT_COMMAND, "describe", "gpt.lader"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean gpt.ladder?" in done.stderr


def test_the_readme_names_tests_of_all_thirteen_points_and_every_one_exists():
    here = Path(__file__).parent
    page = (here.parents[1] / "benchmarks" / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 14))
    for number, tests in rows:
        for part in tests.split("; "):
            file, *names = re.findall(r"`([^`]+)`", part)
            known = re.findall(r"^def test_(\w+)", (here / file).read_text(), re.MULTILINE)
            for name in names:
                assert any(one.startswith(name.rstrip("…")) for one in known), f"point {number}: {file} has no {name}"


def test_cases_that_differ_in_what_is_built_in_are_one_with_a_plugin():
    built_in, _ = choose(["moe.layer"], Preset.CPU, {})
    plugged_in, _ = choose(["moe.layer"], Preset.CPU, {}, plugged_in=True)
    assert {one.case.variant["impl"] for one in built_in} >= {"loop", "capacity", "grouped_mm"}
    assert [one.name for one in plugged_in] == [f"moe.layer/8-2-{load}-fp32" for load in ("uniform", "zipf", "hot")]


def test_a_case_of_a_plugin_is_one_that_can_run_here_where_there_is_one():
    (plain,), _ = choose(["attn.train/causal-512-64"], Preset.CPU, {}, plugged_in=True)
    assert plain.case.not_applicable is None
    (document,), _ = choose(["attn.train/document-*"], Preset.CPU, {}, plugged_in=True)
    assert "cannot be asked for the document mask" in document.case.not_applicable


@pytest.mark.parametrize("mask", ["window", "document"])
def test_a_mask_that_a_plugin_is_not_told_of_is_not_run_as_a_plain_one_on_a_gpu(mask):
    (built_in,), _ = choose([f"attn.train/flex-{mask}-8192-128"], Preset.FULL, {})
    assert built_in.case.not_applicable is None
    (plugged_in,), _ = choose([f"attn.train/{mask}-8192-128"], Preset.FULL, {}, plugged_in=True)
    assert plugged_in.case.not_applicable is not None
    (full,), _ = choose(["attn.train/full-8192-128"], Preset.FULL, {}, plugged_in=True)
    assert full.case.not_applicable is None, "causal=False says all of it"
