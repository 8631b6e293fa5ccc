"""Published figures of registered benchmarks, to stand beside measured curves; each names its machine and source."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Figures of one source. A single `level` holds everywhere on the axis."""

    benchmark: str
    metric: str
    name: str
    source: str
    points: Sequence[tuple[float | str, float]] = ()
    level: float | None = None

    @property
    def largest(self) -> float:
        return max([value for _, value in self.points] + ([] if self.level is None else [self.level]))


RUNGS = tuple(f"r{number:02d}" for number in range(11))
LADDER_A100 = (12525, 12526, 27648, 28399, 28402, 45486, 55256, 91901, 112046, 127345, 142156)

PUBLISHED = (
    Published(
        benchmark="gpt.ladder",
        metric="tokens_per_s",
        name="one A100, published",
        source="the published A100 ladder for GPT-2 124M",
        points=tuple(zip(RUNGS, LADDER_A100, strict=True)),
    ),
    Published(
        benchmark="gpt.ddp",
        metric="scaling_efficiency",
        name="worth a look",
        source="below 80 %",
        level=0.8,
    ),
    Published(benchmark="gpt.ddp", metric="scaling_efficiency", name="a fault", source="below 70 %", level=0.7),
    Published(
        benchmark="coll.all_reduce",
        metric="busbw_gb_per_s",
        name="8×H100, NVLS, published",
        source="NVIDIA/nccl-tests 272 and 290: 475 to 480 GB/s",
        level=475.0,
    ),
    Published(
        benchmark="coll.all_reduce",
        metric="busbw_gb_per_s",
        name="8×H100, published",
        source="NVIDIA/nccl-tests 326: 360 to 370 GB/s at 1 GB and up",
        level=365.0,
    ),
)
COMPARABLE = 8  # a curve this many times below what is published would lie flat on the axis


def beside(benchmark: str, metric: str, largest: float) -> tuple[list[Published], list[Published]]:
    """Published figures that can be drawn beside a curve, and those of machines too different for one axis."""
    known = [each for each in PUBLISHED if each.benchmark == benchmark and each.metric == metric]
    near = [each for each in known if largest > 0 and 1 / COMPARABLE <= each.largest / largest <= COMPARABLE]
    return near, [each for each in known if each not in near]
