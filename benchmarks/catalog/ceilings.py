"""Ceilings: what the machine can do at most; they bound every roofline and serve as the canary of a session."""

from __future__ import annotations

from benchmarks.spec import FEW, Benchmark, Case, Preset, PublishedFigure

MIB, GIB = 2**20, 2**30


def _gemm_cases(preset: Preset) -> tuple[Case, ...]:
    if preset is Preset.CPU:
        config = {"side": 512, "dtype": "fp32", "device": "cpu"}
        return (Case(variant={"dtype": "fp32", "side": 512}, config=config, processes=FEW),)
    sides = (8192,) if preset is Preset.SMOKE else (2048, 4096, 8192, 16384)
    return tuple(
        Case(variant={"dtype": dtype, "side": side}, config={"side": side, "dtype": dtype, "device": "cuda"})
        for dtype in ("bf16", "tf32", "fp8", "fp8_fast")
        for side in sides
    )


def _memory_cases(preset: Preset) -> tuple[Case, ...]:
    cpu = preset is Preset.CPU
    size = 64 * MIB if cpu else 4 * GIB
    config = {"bytes": size, "dtype": "fp32", "device": "cpu" if cpu else "cuda"}
    return tuple(
        Case(
            variant={"kind": kind},
            config={**config, "kind": kind},
            processes=FEW if cpu else None,
            not_applicable="a CPU has no device to copy to" if cpu and "host" in kind else None,
        )
        for kind in ("copy", "triad", "host_to_device", "device_to_host")
    )


def _launch_cases(preset: Preset) -> tuple[Case, ...]:
    device = "cpu" if preset is Preset.CPU else "cuda"
    few = FEW if preset is Preset.CPU else None
    return (Case(variant={"kind": "add_one"}, config={"device": device, "dtype": "fp32"}, processes=few),)


BENCHMARKS = (
    Benchmark(
        id="ceiling.gemm",
        title="Matrix product of random numbers",
        mode="ceiling",
        workload="benchmarks.workloads.ceilings:Gemm",
        cases=_gemm_cases,
        meaning="The best rate of multiplication that this machine reaches for one large square product. Inputs are "
        "normal random numbers: zeros draw less power, run up to a seventh faster, and are unrealistic. fp8 with "
        "exact accumulation, and with fast accumulation (`fp8_fast`), which keeps fewer bits of the running sum.",
        formula="2·M·N·K FLOP over the median time.",
        bound="Power before arithmetic on H100 and H200: 989.5 TFLOP/s bf16 is the data sheet's figure; random "
        "numbers allow 650 to 780.",
        references=(
            PublishedFigure(
                figure="A100, 8192³ bf16: 295 TFLOP/s on zeros, 257 on random numbers", source="thonking.ai"
            ),
            PublishedFigure(figure="780 TFLOP/s on H100 for 4224×8192×2048", source="a public gist of Horace He"),
        ),
        builtin="torch.mm",
    ),
    Benchmark(
        id="ceiling.memory",
        title="Memory traffic: copy, triad, transfers",
        mode="ceiling",
        workload="benchmarks.workloads.ceilings:MemoryTraffic",
        cases=_memory_cases,
        meaning="Bytes per second that memory really moves: a copy, a triad a = b + 2.5·c, and pinned transfers to and "
        "from the device. Memory-bound kernels are compared with the copy.",
        formula="copy 2·S bytes, triad 3·S, transfers S, over the median time; decimal GB.",
        bound="HBM: 4.8 TB/s on H200, of which some 4.2 are reachable; PCIe gen 5 ×16: 64 GB/s per direction.",
        references=(PublishedFigure(figure="4.8 TB/s HBM3e", source="H200 SXM data sheet"),),
        builtin="torch.Tensor.copy_",
    ),
    Benchmark(
        id="ceiling.launch",
        title="Cost of launching nothing",
        mode="ceiling",
        workload="benchmarks.workloads.ceilings:Launch",
        cases=_launch_cases,
        meaning="What one operation costs before it does any work: Python, dispatch and, on a GPU, the launch. "
        "A step of 2,000 tiny operations cannot be faster than 2,000 of these.",
        formula="time of 400 additions to one element, over 400.",
        bound="The host's single-thread speed.",
        references=(
            PublishedFigure(
                figure="for scale: a whole 0.5 MB all_reduce of two GPUs takes 7 us as one kernel of its own, 11 us by "
                "NCCL, so a launch of some microseconds is a large part of it",
                source="vllm-project/vllm pull request 24111",
            ),
        ),
        builtin="torch.Tensor.add_",
    ),
)
