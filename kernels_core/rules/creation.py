"""Tensors that come from numbers: constants, ranges, identities.

A constant that the format cannot hold grants one rounding, which is what every kernel commits. Memory that nothing has
written (`empty`) may hold anything: its bound is infinite until something overwrites it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, nothing_known
from kernels_core.exact.numbers import NotSeparatedError
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import elementwise_tiles, integer_value
from kernels_core.rules.movement import each_part, held
from kernels_core.rules.record import Family, Rule


def _device(local: Local, args: Any, kwargs: Any) -> Any:
    like = next((v.mid.device for v in args if isinstance(v, Enclosure)), None)
    return kwargs.get("device") or like or torch.device("cpu")


def _format(local: Local) -> torch.dtype:
    return torch.float64 if local.nominal.is_floating_point else local.nominal


def filled(local: Local, value: Any, device: Any) -> Enclosure:
    """Return a tensor of the result's shape with one constant."""
    mid = torch.full(local.shape, value, dtype=_format(local), device=device)
    rounding = held(local, value)
    return Enclosure(mid, torch.full_like(mid, rounding) if rounding else None)


def _full(position: int) -> Any:
    """Return the bound of an operation that fills with the argument at this position."""

    def bound(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
        return filled(local, local.step.argument(position, "fill_value"), _device(local, args, kwargs))

    return bound


def _constant(value: float) -> Any:
    return lambda local, *args, **kwargs: filled(local, value, _device(local, args, kwargs))


def _filled_from(local: Local, a: Enclosure, value: Any) -> Enclosure:
    if not isinstance(value, Enclosure):
        return filled(local, value, a.mid.device)
    return each_part(
        Enclosure(value.mid.to(_format(local)), value.bound, value.unsure), lambda v: v.expand(local.shape)
    )


def unknown(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
    """Return memory that may hold anything."""
    mid = torch.zeros(local.shape, dtype=_format(local), device=_device(local, args, kwargs))
    return nothing_known(mid)


def _integers(local: Local, args: Any, kwargs: Any) -> Enclosure:
    return Enclosure(local.step.op(*args, **kwargs))  # type: ignore[misc]


def _range_ends(step: Any) -> tuple[float, float]:
    """Return start and step of an arange."""
    if step.name == "aten.arange.default":
        return 0, 1
    return step.args[0], step.argument(2, "step", 1)


def arange(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
    """Start + i step: three roundings (of step, product and sum), none where the format holds every value and step."""
    if not local.nominal.is_floating_point:
        return _integers(local, args, kwargs)
    start, step = _range_ends(local.step)
    along = torch.arange(local.step.shape[0], dtype=torch.float64, device=_device(local, args, kwargs)) * step
    mid = along + start
    largest = max(float(mid.abs().amax()), float(along.abs().max())) if mid.numel() else 0.0
    if float(start).is_integer() and float(step).is_integer() and largest <= 1 / local.u:
        return Enclosure(mid)
    return Enclosure(
        mid, (along.abs() * 2 + mid.abs() + abs(start)).mul_(local.u * INFLATE * (1 + 4 * local.u)).add_(local.eta)
    )


def linspace(local: Local, start: float, end: float, steps: int, **kwargs: Any) -> Enclosure:
    """Start + i (end - start) / (n - 1), from either end.

    The step carries 2 roundings, and those of start and end; i times the step one more, the sum one more:
        u (4 |end - start| + 2 (|start| + |end|) + |value|).
    """
    if not local.nominal.is_floating_point:
        return _integers(local, (start, end, steps), kwargs)
    mid = torch.linspace(float(start), float(end), steps, dtype=torch.float64, device=_device(local, (), kwargs))
    spread = 4 * abs(end - start) + 2 * (abs(start) + abs(end))
    return Enclosure(mid, (mid.abs() + spread).mul_(local.u * INFLATE * (1 + 8 * local.u)).add_(local.eta))


def eye(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
    """The identity."""
    rows, columns = local.step.shape
    return Enclosure(torch.eye(rows, columns, dtype=_format(local), device=_device(local, args, kwargs)))


def _iota(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
    return _integers(local, args, kwargs)


def _no_cone(call: Any) -> list[np.ndarray]:
    return [np.full((len(call.index), 0), -1, dtype=np.int64) for _ in call.step.operand_metas]


def _number(call: Any, value: Any) -> Any:
    value = value if call.meta.dtype.is_floating_point else torch.full((), value, dtype=call.meta.dtype).item()
    return call.numbers.real(call.numbers.of(value)) if call.meta.dtype.is_floating_point else value


def _exact_constant(value: Any) -> Any:
    def exact(call: Any, *_: Any) -> Any:
        chosen = call.step.argument(value[0], "fill_value") if isinstance(value, tuple) else value
        return np.array([_number(call, chosen)] * len(call.index), dtype=object)

    return exact


def _exact_unknown(call: Any, *_: Any) -> Any:
    if len(call.index):
        raise NotSeparatedError
    return np.empty(0, dtype=object)  # overwritten everywhere


def _exact_arange(call: Any, *_: Any) -> Any:
    if not call.meta.dtype.is_floating_point:
        return integer_value(call)
    n, (start, step) = call.numbers, _range_ends(call.step)
    return np.array([n.real(n.of(start)) + n.real(n.of(step)) * int(i) for i in call.index], dtype=object)


def _exact_linspace(call: Any, *_: Any) -> Any:
    if not call.meta.dtype.is_floating_point:
        return integer_value(call)
    n, (start, end, steps) = call.numbers, call.step.args[:3]
    first, last = n.real(n.of(start)), n.real(n.of(end))
    return np.array([first + (last - first) * int(i) / max(1, steps - 1) for i in call.index], dtype=object)


def _exact_eye(call: Any, *_: Any) -> Any:
    columns = call.meta.shape[1]
    return np.array([_number(call, 1 if i // columns == i % columns else 0) for i in call.index.tolist()], dtype=object)


def _exact_fill_tensor(call: Any, _: Any, value: Any) -> Any:
    return call.numbers.each(call.numbers.real, value) if call.meta.dtype.is_floating_point and len(value) else value


def _rule(name: str, bound: Any, exact: Any, **flags: Any) -> Rule:
    return Rule(name if name.startswith("prims.") else f"aten.{name}", bound, _no_cone, exact, **flags)


def _constants(value: float, *names: str) -> list[Rule]:
    return [_rule(name, _constant(value), _exact_constant(value), tiles=elementwise_tiles) for name in names]


_UNKNOWN = (
    "empty.memory_format", "empty_like.default", "empty_strided.default", "new_empty.default",
    "new_empty_strided.default", "empty_permuted.default", "prims.empty_strided.default",
    "prims.empty_permuted.default",
)  # fmt: skip

FAMILY = Family()
FAMILY.add(
    _rule("full.default", _full(1), _exact_constant((1,)), tiles=elementwise_tiles),
    _rule("full_like.default", _full(1), _exact_constant((1,)), tiles=elementwise_tiles),
    _rule("new_full.default", _full(2), _exact_constant((2,))),
    _rule("scalar_tensor.default", _full(0), _exact_constant((0,))),
    _rule("fill.Scalar", _filled_from, _exact_constant((1,)), tiles=elementwise_tiles),
    Rule(
        "aten.fill.Tensor",
        _filled_from,
        lambda call: [_no_cone(call)[0], np.zeros_like(call.index)],
        _exact_fill_tensor,
    ),
    *_constants(0, "zeros.default", "zeros_like.default", "_efficientzerotensor.default"),
    *_constants(1, "ones.default", "ones_like.default"),
    _rule("new_zeros.default", _constant(0), _exact_constant(0)),
    _rule("new_ones.default", _constant(1), _exact_constant(1)),
    *(_rule(name, unknown, _exact_unknown) for name in _UNKNOWN),
    _rule("arange.default", arange, _exact_arange),
    _rule("arange.start", arange, _exact_arange),
    _rule("arange.start_step", arange, _exact_arange),
    _rule("linspace.default", linspace, _exact_linspace),
    _rule("eye.default", eye, _exact_eye),
    _rule("eye.m", eye, _exact_eye),
    _rule("prims.iota.default", _iota, integer_value),
    _rule("tril_indices.default", _iota, integer_value),
    _rule("triu_indices.default", _iota, integer_value),
)
