"""The sensitivity line of a case: which faults these inputs and bounds would show, and which not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernels_core.report import Sensitivity, TensorReport

# What the line says of results of each format; the JSON report has every format.
_ROUNDINGS = {"float64": ("float32",), "float32": ("float16", "bfloat16"), "float16": ("bfloat16",),
              "bfloat16": ("float8_e4m3fn",)}  # fmt: skip
_IN_SUM = "tf32"


WIDTH = 126  # of the line; what is longer stands on two


def lines(rows: Sequence[TensorReport]) -> list[str]:
    """Return ["would be flagged: float16 rounding on 98 % of elements, ...; not: tf32 in the sum"], [] for no tensor.

    The share is that of the tensor where it is least; a tensor where it is zero is named after "not".
    """
    shares: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.sensitivity is not None:
            for fault, share in _faults(row.dtype, row.sensitivity):
                shares.setdefault(fault, {})[row.name] = share
    seen, missed = [], []
    for fault, found in shares.items():
        shown = [share for share in found.values() if share >= 0.005]
        blind = [name for name, share in found.items() if share < 0.005]
        seen += [f"{fault} on {_percent(min(shown))}"] if shown else []
        missed += [fault + (f" of {', '.join(blind)}" if shown else "")] if blind else []
    if seen:
        seen[0] += " of elements"
    parts = [f"would be flagged: {', '.join(seen)}"] * bool(seen) + [f"not: {', '.join(missed)}"] * bool(missed)
    whole = "; ".join(parts)
    return parts if len(whole) > WIDTH else [whole] * bool(whole)


def _faults(dtype: str, found: Sensitivity) -> Iterator[tuple[str, float]]:
    for name in _ROUNDINGS.get(dtype, ()):
        yield f"{name} rounding", found.rounding[name]
    yield "a factor of 1.001", found.factor_1_001
    yield "a zero", found.zeroed
    yield "a swapped pair", found.swapped
    if _IN_SUM in found.in_sum:
        yield f"{_IN_SUM} in the sum", found.in_sum[_IN_SUM]


def _percent(share: float) -> str:
    """Return "98 %", rounded down: 100 % is every element that was looked at."""
    return f"{int(100 * share)} %"
