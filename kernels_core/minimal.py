"""A smaller case that is still violated for certain: sizes first, then values.

Each attempt runs the kernel and decides every element anew, so that what is left is as well proved as what it came
from. Sizes that several tensors share are cut together. The upstream gradient stays what the seed makes of the shapes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels_core.eight_bits import equal, widened
from kernels_core.errors import ExactRefError
from kernels_core.report import Report, TensorReport, Verdict
from kernels_core.tracing.arguments import named_tensors, with_tensors

Tensor = torch.Tensor
SECONDS = 20.0  # that shrinking one case may take


def smallest(verify: Callable[[Mapping[str, Any]], Report], inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Report]:
    """Return inputs that are as small and plain as was found, and the report of their violation.

    Args:
        verify: of inputs by name, in argument order.
        inputs: that are violated.
    """
    search = _Search(verify, dict(inputs))
    while search.shrink_a_size():
        pass
    search.simplify_values()
    return search.inputs, search.report


def violated_row(report: Report) -> TensorReport | None:
    """Return the first row with a violated element, None where there is none."""
    return next((row for row in report.tensors if row.verdict is Verdict.VIOLATED and row.failure is not None), None)


class _Search:
    """The smallest violated inputs so far."""

    def __init__(self, verify: Callable[[Mapping[str, Any]], Report], inputs: dict[str, Any]) -> None:
        self.verify, self.inputs, self.report = verify, inputs, verify(inputs)
        row = violated_row(self.report)
        if row is None:
            raise ExactRefError("nothing to reproduce: no element is violated")
        self.name, self.deadline = row.name, time.monotonic() + SECONDS

    def accepts(self, tensors: Mapping[str, Tensor]) -> bool:
        """Take these tensors over where the same result is still violated."""
        if time.monotonic() > self.deadline:
            return False
        inputs = with_tensors(self.inputs, tensors)
        try:
            report = self.verify(inputs)
        except (ExactRefError, RuntimeError, ValueError, TypeError, IndexError):  # shapes that do not fit together
            return False
        row = violated_row(report)
        if row is None or row.name != self.name:
            return False
        self.inputs, self.report = inputs, report
        return True

    def shrink_a_size(self) -> bool:
        """Cut one size, as far as one step goes; return False where none can be cut."""
        tensors = named_tensors(self.inputs)
        for size in sorted({n for t in tensors.values() for n in t.shape if n > 1}, reverse=True):
            for smaller in dict.fromkeys((1, 2, 3, size // 2, size - 1)):
                if 0 < smaller < size and any(self.accepts(cut) for cut in _cuts(tensors, size, smaller)):
                    return True
        return False

    def simplify_values(self) -> None:
        """Let each floating tensor hold plainer numbers: ones, whole numbers, a few digits."""
        for name in named_tensors(self.inputs):
            for plain in _plainer(named_tensors(self.inputs)[name]):
                if self.accepts({name: plain}):
                    break


def _cuts(tensors: Mapping[str, Tensor], size: int, smaller: int) -> Iterator[dict[str, Tensor]]:
    """Yield the tensors with a size cut: everywhere, then in a single place each."""
    places = [(name, dim) for name, t in tensors.items() for dim, n in enumerate(t.shape) if n == size]
    for chosen in [places, *([place] for place in places)] if len(places) > 1 else [places]:
        cut = dict(tensors)
        for name, dim in chosen:
            cut[name] = cut[name].narrow(dim, 0, smaller).contiguous()
        yield cut


def _plainer(tensor: Tensor) -> Iterator[Tensor]:
    wide = widened(tensor)
    if not tensor.is_floating_point() or not bool(wide.isfinite().all()):
        return
    for candidate in (torch.ones_like(wide), wide.round(), (wide * 4).round() / 4, _digits(wide, 3)):
        if not equal(plain := candidate.to(tensor.dtype), tensor):
            yield plain


def _digits(tensor: Tensor, digits: int) -> Tensor:
    """Return the tensor with a few decimal digits of each element."""
    flat = [float(f"{value:.{digits}g}") for value in tensor.double().reshape(-1).tolist()]
    return torch.tensor(flat, dtype=torch.float64).reshape(tensor.shape).to(tensor)
