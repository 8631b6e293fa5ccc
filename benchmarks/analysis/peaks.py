"""Data-sheet peaks of accelerators, dense bf16: what MFU is a share of. An unknown device has none."""

from __future__ import annotations

# The more particular name first: "NVIDIA H200 NVL" is no SXM part.
_BF16_TFLOPS = (
    ("H200 NVL", 836.0),
    ("H200", 989.5),
    ("H100 PCIe", 756.0),
    ("H100 NVL", 835.0),
    ("H100", 989.5),
    ("GH200", 989.5),
    ("B200", 2250.0),
    ("A100", 312.0),
    ("MI300X", 1307.4),
    ("MI325X", 1307.4),
)


# One direction; data sheets add both.
_LINK_GB_PER_S = (("NVL", None), ("PCIe", None), ("H200", 450.0), ("H100", 450.0), ("B200", 900.0), ("A100-SXM", 300.0))


def link_gb_per_s(accelerator: str) -> float | None:
    """Bandwidth of the device's links in one direction, or None where the name does not tell how it is linked."""
    return next((limit for part, limit in _LINK_GB_PER_S if part in accelerator), None)


def bf16_flop_per_s(accelerator: str) -> float | None:
    """Dense bf16 FLOP/s of the named device, or None."""
    for part, tera in _BF16_TFLOPS:
        if all(word in accelerator for word in part.split()):
            return tera * 1e12
    return None
