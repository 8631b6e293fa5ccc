"""Correctness before speed.

Errors against double precision, with limits relative to the naive path in the same precision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

ALLOWANCE = {"fp64": 2.0**-50, "fp32": 2.0**-21, "tf32": 2.0**-10, "fp16": 2.0**-10, "bf16": 2.0**-8}
"""The difference allowed where the naive path happens to be exact: a rounding or a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check: its value must not exceed its limit (NaN never passes). `inputs` says what broke it."""

    name: str
    value: float
    limit: float
    inputs: str = ""

    @property
    def passed(self) -> bool:
        """Whether the value is within its limit."""
        return self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """The contract's shape; a value that is no number is said in words."""
        finite = self.value == self.value and abs(self.value) != float("inf")
        shown = {"name": self.name, "value": self.value if finite else None, "limit": self.limit}
        if not finite:
            shown["note"] = "the value is not finite"
        return shown | ({"inputs": self.inputs} if self.inputs else {})


@dataclass(slots=True)
class Correctness:
    """All checks of one variant against one reference."""

    reference: str
    findings: list[CheckResult] = field(default_factory=list)

    def require(self, name: str, value: float, limit: float, inputs: str = "") -> None:
        """Adds a check."""
        self.findings.append(CheckResult(name=name, value=float(value), limit=float(limit), inputs=inputs))

    @property
    def failed(self) -> CheckResult | None:
        """The first check that failed, or None."""
        return next((finding for finding in self.findings if not finding.passed), None)

    def to_json(self) -> dict[str, Any]:
        """The contract's `correctness`."""
        state = "skipped" if not self.findings else ("pass" if self.failed is None else "fail")
        return {"state": state, "reference": self.reference, "checks": [finding.to_json() for finding in self.findings]}

    def sentence(self) -> str:
        """The failed checks, as the result's error."""
        bad = self.failed
        if bad is None:
            return "every check passed"
        where = f" with {bad.inputs}" if bad.inputs else ""
        found = f"{bad.value:.3g}, limit {bad.limit:.3g} (reference {self.reference})"
        return f"check {bad.name} failed{where}: {found}; its speed is void"


def worst_error(measured: Tensor, reference: Tensor) -> float:
    """max|x − ref| / max|ref|, in double precision."""
    ours, theirs = measured.detach().double(), reference.detach().double()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-300))


def norm_error(measured: Iterable[Tensor], reference: Iterable[Tensor]) -> float:
    """‖x − ref‖ / ‖ref‖ over all tensors together, in double precision."""
    difference = total = 0.0
    for ours, theirs in zip(measured, reference, strict=True):
        exact = theirs.detach().double()
        difference += float((ours.detach().double() - exact).square().sum())
        total += float(exact.square().sum())
    return (difference / max(total, 1e-300)) ** 0.5


def relative_limit(naive_error: float, dtype: str) -> float:
    """At most twice the error of the naive path in the same precision, and a small allowance."""
    return 2.0 * naive_error + ALLOWANCE[dtype]
