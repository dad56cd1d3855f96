"""The rows of the coverage table, one for each result, and what a failure shows: worst elements, pattern, diagnosis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch

from kernels_core.blame import blame
from kernels_core.coverage import Element, Figures
from kernels_core.diagnosis import Evidence, Setting, diagnose
from kernels_core.errors import UsageError
from kernels_core.formats import format_of, ulp
from kernels_core.inputs.exhaustive import failing_values, holds_all_values
from kernels_core.reference import Result
from kernels_core.report import Element as Shown
from kernels_core.report import Failure, TensorReport, Verdict

Tensor = torch.Tensor
SHOWN = 10


def rows_of(
    results: Mapping[str, Result],
    outputs: Mapping[str, Tensor | None],
    gradients: Mapping[str, Tensor | None],
    setting: Setting | None,
) -> list[TensorReport]:
    """Return a row for every result.

    Args:
        results: what is admissible, by name.
        outputs: what the kernel returned, by name.
        gradients: the same; None means zero.
        setting: as in `row`.

    Raises:
        UsageError: the kernel returned an output that the reference does not have, or a sparse tensor.
    """
    for name, tensor in (*outputs.items(), *gradients.items()):
        if tensor is not None and tensor.layout != torch.strided:
            raise UsageError(f"{name}: sparse tensors are not supported\nlet the kernel return a dense one")
    extra = [name for name in outputs if name not in results and f"{name}.real" not in results]
    if extra:
        wanted = ", ".join(name for name in results if not name.startswith("grad_"))
        raise UsageError(f"the kernel returned {', '.join(outputs)}; the reference has {wanted}\n"
                         "let both return the same outputs")  # fmt: skip
    return [_row_of(result, name, outputs, gradients, setting) for name, result in results.items()]


def _row_of(
    result: Result,
    name: str,
    outputs: Mapping[str, Tensor | None],
    gradients: Mapping[str, Tensor | None],
    setting: Setting | None,
) -> TensorReport:
    kind = "gradient" if name.startswith("grad_") else "output"
    actual, note = gradients.get(name) if kind == "gradient" else outputs.get(name), ""
    if actual is None and kind == "gradient":
        actual = torch.zeros(result.meta.shape, dtype=result.meta.dtype, device=result.enclosure.mid.device)
        note = "the backward returned None, which means zero"
    try:
        if (whole := outputs.get(name.rpartition(".")[0])) is not None and actual is None:
            raise UsageError(f"expected the parts of a complex tensor, got {str(whole.dtype)[6:]}")
        if actual is None:
            raise UsageError(f"the kernel returned no such output; it returned {', '.join(outputs)}")
        return row(result, actual, kind, note, setting)
    except UsageError as error:
        return mismatch_row(result, kind, str(error).splitlines()[0].removeprefix(f"{name}: "))


def row(result: Result, actual: Tensor, kind: str, note: str = "", setting: Setting | None = None) -> TensorReport:
    """Decide every element of `actual` and return its row.

    Args:
        result: what is admissible.
        actual: what the kernel returned.
        kind: "output" or "gradient".
        note: for the user.
        setting: what a diagnosis may ask for beside the values, None to do with these.
    """
    figures = Figures()
    verdict, kinks = result.verdict_and_kinks(actual, figures)
    counts = (
        [int(torch.count_nonzero(verdict == element)) for element in Element]
        if verdict.numel() and int(verdict.numpy().max())
        else [verdict.numel(), 0, 0, 0]
    )
    accepted = 0 if result.kinks is None else int(torch.count_nonzero(kinks))
    failure = None
    if counts[Element.VIOLATED]:
        here = actual.detach().to(result.enclosure.mid.device)
        failure = explain(Evidence(result, here, (verdict == Element.VIOLATED).to(here.device), setting))
    return TensorReport(
        name=result.name, kind=kind, shape=tuple(actual.shape), dtype=str(actual.dtype)[6:], elements=actual.numel(),
        covered=counts[Element.COVERED], violated=counts[Element.VIOLATED], undecided=counts[Element.UNDECIDED],
        unconstrained=counts[Element.UNCONSTRAINED], kinks=accepted,
        max_error_ulp=figures.error_ulp, bound_ulp=_median_ulp(result), used=figures.used, precision=None,
        verdict=_verdict(counts), failure=failure, note=note,
    )  # fmt: skip


def mismatch_row(result: Result, kind: str, note: str) -> TensorReport:
    """Return the row of a tensor whose shape or dtype is not the reference's: every element is violated."""
    n = result.meta.numel
    return TensorReport(
        name=result.name, kind=kind, shape=result.meta.shape, dtype=str(result.meta.dtype)[6:], elements=n, covered=0,
        violated=n,
        undecided=0, unconstrained=0, kinks=0, max_error_ulp=math.inf, bound_ulp=0.0, used=math.inf, precision=None,
        verdict=Verdict.VIOLATED, failure=None, note=note,
    )  # fmt: skip


def _verdict(counts: list[int]) -> Verdict:
    for element, verdict in ((Element.VIOLATED, Verdict.VIOLATED), (Element.UNDECIDED, Verdict.UNDECIDED),
                             (Element.UNCONSTRAINED, Verdict.UNCONSTRAINED)):  # fmt: skip
        if counts[element]:
            return verdict
    return Verdict.COVERED


def _median_ulp(result: Result) -> float:
    """Return the median bound in ulp of at most 8192 elements, evenly spread."""
    if not result.enclosure.floating:
        return 0.0
    mids = result.enclosure.mid.reshape(-1)
    spread = slice(None, None, max(1, -(-mids.numel() // 8192)))
    bounds = result.enclosure.bound_or_zero().expand(result.enclosure.shape).reshape(-1)
    sample = bounds[spread] / ulp(mids[spread], format_of(result.meta.dtype))
    sample = sample[sample.isfinite()]
    return float(sample.median()) if sample.numel() else 0.0


def explain(evidence: Evidence) -> Failure:
    """Return the worst failing elements, the pattern of their indices and the diagnosis."""
    result, actual, failing = evidence.result, evidence.actual, evidence.failing
    where = torch.nonzero(failing)
    flat = torch.nonzero(failing.reshape(-1)).reshape(-1)
    mid, value = result.enclosure.mid.reshape(-1)[flat].to(torch.float64), actual.reshape(-1)[flat].to(torch.float64)
    bound = result.enclosure.bound_or_zero().expand(result.enclosure.shape).reshape(-1)[flat]
    excess = ((value - mid).abs() - bound).nan_to_num(nan=math.inf, posinf=math.inf)
    step = ulp(mid, format_of(actual.dtype)) if result.enclosure.floating else torch.ones_like(mid)
    order = torch.argsort(excess / step, descending=True)[:SHOWN]
    lower, upper = result.lower.reshape(-1)[flat[order]], result.upper.reshape(-1)[flat[order]]
    exact = result.exact_at(flat[order])
    elements = tuple(
        Shown(tuple(int(i) for i in where[o]), _number(value[o]), _number(lower[k]), _number(upper[k]), float(exact[k]),
              float(excess[o] / step[o]), _ratio(float(value[o]), float(exact[k])))
        for k, o in enumerate(order.tolist())
    )  # fmt: skip
    found = (*_of_all_values(evidence), *diagnose(evidence))
    return Failure(elements, pattern(failing), found, tuple(actual.stride()), blame(evidence))


def _of_all_values(evidence: Evidence) -> tuple[str, ...]:
    """Return which values of the input fail, where the input holds all of its format."""
    given = [] if evidence.setting is None else list(evidence.setting.check.tensors.values())
    if len(given) != 1 or not holds_all_values(given[0]) or given[0].shape != evidence.failing.shape:
        return ()
    return (failing_values(given[0], evidence.failing),)


def _number(value: Tensor) -> Any:
    return value.item()


def _ratio(actual: float, exact: float) -> float | None:
    ratio = actual / exact if exact else math.nan
    return ratio + 0.0 if math.isfinite(ratio) else None  # never -0.0


def pattern(failing: Tensor) -> str:
    """Return one line that says which indices fail."""
    count, total = int(failing.sum()), failing.numel()
    head = f"{count} of {total} elements ({100 * count / total:.1f} %)"
    if count == total:
        return f"all {total} elements" if total > 1 else "the only element"
    lines = []
    for dim in range(failing.dim()):
        others = [d for d in range(failing.dim()) if d != dim]
        hit = failing.any(dim=others) if others else failing
        indices = torch.nonzero(hit).reshape(-1).tolist()
        if len(indices) < failing.shape[dim]:
            lines.append(f"{_dim_name(dim, failing.dim(), len(indices))} {_ranges(indices, failing.shape[dim])}")
    return head + (": " + ", ".join(lines) if lines else "")


def _dim_name(dim: int, rank: int, count: int) -> str:
    if rank == 1:
        return "index"
    if rank == 2:
        return ("row", "column")[dim] + "s" * (count > 1)
    return f"dimension {dim}:"


def _ranges(indices: list[int], size: int) -> str:
    """Return "3, 7, 16-31 (the last 16)", shortened."""
    runs: list[list[int]] = []
    for i in indices:
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:4])
    if len(runs) > 4:
        text += f" and {len(runs) - 4} more runs"
    if len(runs) == 1 and runs[0][1] == size - 1 and size > len(indices):
        text += f" (the last {len(indices)})" if len(indices) > 1 else " (the last)"
    step = indices[1] - indices[0] if len(indices) > 2 else 1
    if step > 1 and all(b - a == step for a, b in itertools.pairwise(indices)):
        text += f" (step {step})"
    return text
