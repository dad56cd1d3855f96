"""The values of the true function and derivative: what a correct kernel is likely to pass through.

A value of the kernel's program is known to be right where it is one of these: an intermediate result of the reference,
of its derivative, or of the derivative of the kernel's own forward (which has the kernel's intermediate results), up to
its sign and to a transposition. A right kernel may well pass through other values; they are not known to be wrong.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.errors import ExactRefError
from kernels_core.filter.arithmetic import Arithmetic
from kernels_core.filter.evaluation import evaluate_step
from kernels_core.program import Program, Ref
from kernels_core.reference import Check
from kernels_core.tracing import derivatives
from kernels_core.tracing import trace as tracing
from kernels_core.tracing.standin import forward_of, is_function_class

Tensor = torch.Tensor
_SAME = 1e-6  # relative difference below which two float64 evaluations of formulas are taken for one value


class Truth:
    """Right values, to be looked up."""

    def __init__(self, values: Iterable[Tensor]) -> None:
        """Keep the values, by number of elements."""
        self._by_size: dict[int, list[tuple[float, Tensor]]] = {}
        for value in values:
            compact = _compact(value)
            self._by_size.setdefault(compact.numel(), []).append((_weight(compact), compact))
        for known in self._by_size.values():
            known.sort(key=_first)

    def has(self, value: Tensor) -> bool:
        """Return True where the value is one of these, up to sign and transposition."""
        compact = _compact(value)
        weight, known = _weight(compact), self._by_size.get(compact.numel(), [])
        first = bisect.bisect_left(known, weight * (1 - 2 * _SAME), key=_first)
        last = bisect.bisect_right(known, weight * (1 + 2 * _SAME), key=_first)
        return any(same(compact, form) for _, right in known[first:last] for form in _forms(right, compact))

    def like(self, value: Tensor) -> Iterator[Tensor]:
        """Yield the right values of the same shape (or its transpose) and kind that differ from this one."""
        compact = _compact(value)
        for _, right in self._by_size.get(compact.numel(), ()):
            if right.dtype == compact.dtype and right.squeeze().shape == compact.squeeze().shape:
                if not same(right.reshape(compact.shape), compact):
                    yield right.reshape(compact.shape).expand(value.shape)
            elif right.dim() == compact.dim() >= 2 and right.mT.shape == compact.shape:
                yield right.mT.expand(value.shape)


def truth_of(check: Check, inputs: dict[str, Tensor], function: object, late: Callable[[], bool]) -> Truth:
    """Return the values of the reference's program and, with a function, of the derivative of its own forward.

    Args:
        check: the reference at its inputs.
        inputs: inputs and upstream gradients.
        function: the kernel, None where its forward is wrong.
        late: True where time is over; fewer values are then known to be right.
    """
    found = list(_values(check.joint if check.wrt else check.forward, inputs, check))
    if late():
        return Truth(found)
    if is_function_class(function) and check.wrt:
        try:
            forward = forward_of(function)
            own = derivatives.trace_vjp(forward, check.arguments, check.wrt, tracing.trace(forward, check.arguments))
            if own.output_metas == check.joint.output_metas:
                found += _values(own, inputs, check)
        except (ExactRefError, RuntimeError, TypeError, ValueError):
            pass  # fewer values are known to be right
    return Truth(found)


def _values(program: Program, inputs: dict[str, Tensor], check: Check) -> Iterator[Tensor]:
    arithmetic, values = Arithmetic(check.profile), {}
    for name, number in program.inputs.items():
        values[Ref(number)] = _enclosed(inputs[name])
    for number, tensor in program.constants.items():
        values[Ref(number)] = _enclosed(tensor)
    for step in program.steps:
        if step.op is None:
            continue
        for output, result in enumerate(evaluate_step(step, values, arithmetic)):
            if result is not None:
                values[Ref(step.number, output)] = result
                yield result.mid


def _enclosed(tensor: Tensor) -> Enclosure:
    return Enclosure(tensor.to(torch.float64) if tensor.is_floating_point() else tensor)


def same(first: Tensor, second: Tensor) -> bool:
    """Return True for equal integers and booleans, and for floating values that differ by float64 rounding."""
    if first.dtype != second.dtype:
        return False
    if not first.is_floating_point():
        return torch.equal(first, second)
    scale = second[second.isfinite()].abs().max() if bool(second.isfinite().any()) else second.new_zeros(())
    near = (first - second).abs() <= _SAME * (second.abs() + 1e-3 * scale)
    return bool((near | (first == second) | (first.isnan() & second.isnan())).all())


def _forms(right: Tensor, like: Tensor) -> Iterator[Tensor]:
    if right.squeeze().shape == like.squeeze().shape:
        yield right.reshape(like.shape)
    if right.dim() == like.dim() >= 2 and right.mT.shape == like.shape:
        yield right.mT
    if right.is_floating_point():
        if right.squeeze().shape == like.squeeze().shape:
            yield -right.reshape(like.shape)
        if right.dim() == like.dim() >= 2 and right.mT.shape == like.shape:
            yield -right.mT


def _compact(value: Tensor) -> Tensor:
    """Return the tensor without the repetitions of an expanded one."""
    return value[
        tuple(slice(0, 1) if value.stride(d) == 0 and n > 1 else slice(None) for d, n in enumerate(value.shape))
    ]


def _first(known: tuple[float, Tensor]) -> float:
    return known[0]


def _weight(value: Tensor) -> float:
    return float(value.to(torch.float64).abs().nan_to_num(posinf=1e300, neginf=1e300).sum())
