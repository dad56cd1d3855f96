"""Order: sort, topk, kthvalue, median.

Order statistics are monotone in every argument: the k-th of the perturbed values lies between the k-th of all lower
ends and the k-th of all upper ends. An element keeps its position for certain where it lies above every upper end
before it and below every lower end after it; elsewhere the index is unsure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotSeparatedError, _is_nan
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.cones import integer_value, reduction_cone
from kernels_core.rules.movement import each_part
from kernels_core.rules.operands import parts
from kernels_core.rules.record import Family, Rule

Tensor = torch.Tensor


def ordered(local: Local, a: Enclosure, dim: int, descending: bool, stable: bool) -> tuple[Enclosure, Enclosure]:
    """Return sorted values and their indices."""
    if not a.mid.dim():
        return a, Enclosure(torch.zeros_like(a.mid, dtype=torch.int64))
    value, order = torch.sort(a.mid, dim=dim, descending=descending, stable=True)
    bound = None if parts(a)[1] is None else parts(a)[1].expand(a.shape).gather(dim, order)  # type: ignore[union-attr]
    if not a.mid.shape[dim]:
        return Enclosure(value, bound), Enclosure(order)
    low, high = _ends(value, bound, descending)
    before, after = _running(high, dim, low), _running(-low.flip(dim), dim, low).flip(dim).neg_()
    crossing = (low < before) | (high > after)
    tie = ((low == before) | (high == after)) & ~crossing
    tie = _inside(tie, low, before, high, after, dim)
    if a.floating and not local.kinks:
        local.arithmetic.ties += int(tie.sum())
    exact = torch.ones_like(tie) if bound is None else bound == 0
    unsure = crossing | (tie & ~exact) | (tie if not stable or local.kinks else torch.zeros_like(tie))
    if bound is None or not a.floating:
        return Enclosure(value, None, None if a.floating or bound is None else crossing), Enclosure(order, None, unsure)
    if bool(crossing.any()):
        local.lose_rad()  # an order statistic of crossing intervals is not star-shaped
        sign = -1.0 if descending else 1.0
        key = value * sign
        top, bottom = high.sort(dim=dim).values, low.sort(dim=dim).values
        reach = (
            torch.maximum(torch.where(top == key, 0.0, top - key), torch.where(bottom == key, 0.0, key - bottom))
            * INFLATE
        )
        bound = torch.where(crossing, torch.where(reach.isnan(), torch.inf, reach), bound)
    return Enclosure(value, bound), Enclosure(order, None, unsure)


def _ends(value: Tensor, bound: Tensor | None, descending: bool) -> tuple[Tensor, Tensor]:
    """Return both ends in ascending order; NaN is the largest value, and what is unknown may be anything."""
    key = value.to(torch.float64)
    key = torch.where(key.isnan(), torch.inf, key)
    key = -key if descending else key
    if bound is None:
        return key, key
    low, high = key - bound * INFLATE, key + bound * INFLATE
    return torch.where(bound.isinf(), -torch.inf, low), torch.where(bound.isinf(), torch.inf, high)


def _running(value: Tensor, dim: int, like: Tensor) -> Tensor:
    """Return, for each position, the largest of the values in front of it (-inf at the first)."""
    running = value.cummax(dim).values.roll(1, dim)
    running.select(dim, 0).fill_(-torch.inf)
    return running


def _inside(tie: Tensor, low: Tensor, before: Tensor, high: Tensor, after: Tensor, dim: int) -> Tensor:
    """Return the ties without those that the first and last position have with nothing."""
    places = torch.arange(tie.shape[dim], device=tie.device).reshape(
        [-1 if d == dim % tie.dim() else 1 for d in range(tie.dim())]
    )
    return tie & (((low == before) & (places > 0)) | ((high == after) & (places < tie.shape[dim] - 1)))


def sort(
    local: Local, a: Enclosure, dim: int = -1, descending: bool = False, *, stable: Any = False
) -> tuple[Enclosure, Enclosure]:
    """Values and indices in order."""
    return ordered(local, a, dim, descending, bool(stable))


def topk(
    local: Local, a: Enclosure, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Enclosure, Enclosure]:
    """The first k of the order; unsorted ones may come in any order."""
    if not a.mid.dim():
        return ordered(local, a, 0, largest, False)
    values, order = (_narrowed(v, dim, 0, k) for v in ordered(local, a, dim, largest, False))
    if sorted or k <= 1 or not a.floating:
        return values, order
    width = values.mid.amax(dim, keepdim=True) - values.mid.amin(dim, keepdim=True) + values.bound_or_zero().amax()
    local.lose_rad()
    return Enclosure(values.mid, width.expand(values.shape) * INFLATE), Enclosure(
        order.mid, None, torch.ones_like(order.mid, dtype=torch.bool)
    )


def _narrowed(value: Enclosure, dim: int, start: int, length: int) -> Enclosure:
    return each_part(value, lambda v: v.narrow(dim, start, length))


def _squeezed(value: Enclosure, dim: int) -> Enclosure:
    return Enclosure(*(None if v is None else v.squeeze(dim) for v in (value.mid, value.bound, value.unsure)))  # type: ignore[arg-type]


def kthvalue(local: Local, a: Enclosure, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Enclosure, Enclosure]:
    """Position k - 1 of the ascending order."""
    if not a.mid.dim():
        return ordered(local, a, 0, False, False)
    found = [_narrowed(v, dim, k - 1, 1) for v in ordered(local, a, dim, False, False)]
    values, order = found if keepdim else [_squeezed(v, dim) for v in found]
    return values, order


def median(local: Local, a: Enclosure, dim: int, keepdim: bool = False) -> tuple[Enclosure, Enclosure]:
    """The lower median; NaN where there is one."""
    return _middle(local, a, dim, keepdim, local.step.name.startswith("aten.nanmedian"))


def _middle(local: Local, a: Enclosure, dim: int, keepdim: bool, skip: bool) -> tuple[Enclosure, Enclosure]:
    if not a.mid.dim():
        return ordered(local, a, 0, False, False)
    values, order = ordered(local, a, dim, False, False)
    missing = (
        a.mid.isnan().sum(dim, keepdim=True)
        if a.floating
        else torch.zeros_like(a.mid.sum(dim, keepdim=True), dtype=torch.int64)
    )
    n = a.mid.shape[dim]
    place = (n - missing - 1).clamp(min=0) // 2 if skip else torch.where(missing > 0, n - missing, (n - 1) // 2)

    def taken(value: Enclosure) -> Enclosure:
        got = each_part(value, lambda v: v.gather(dim, place))
        return got if keepdim else _squeezed(got, dim)

    return taken(values), taken(order)


def median_of_all(local: Local, a: Enclosure) -> Enclosure:
    """The lower median of all elements."""
    if not a.mid.numel():
        return Enclosure(torch.full((), torch.nan, dtype=torch.float64, device=a.mid.device))
    flat = Enclosure(*(None if v is None else v.expand(a.shape).reshape(-1) for v in (a.mid, a.bound, a.unsure)))  # type: ignore[arg-type]
    return _middle(local, flat, 0, False, local.step.name.startswith("aten.nanmedian"))[0]


def _line_cone(default: int | None, position: int = 1) -> Any:
    """Return the cone: the whole line along the dimension (everything for None), nothing for indices."""

    def cone(call: Any) -> list[np.ndarray]:
        meta = call.step.operand_metas[0]
        if not call.meta.dtype.is_floating_point and call.output == 1:
            return [np.full((len(call.index), 0), -1, dtype=np.int64)]
        rank = len(meta.shape)
        if default is None or not rank:
            return [np.broadcast_to(np.arange(meta.numel), (len(call.index), meta.numel))]
        dim = int(call.step.argument(position, "dim", default)) % rank
        return [reduction_cone([dim], meta, _line_of(call, dim, meta.shape))]

    return cone


def _line_of(call: Any, dim: int, shape: Any) -> np.ndarray:
    """Return which line along `dim` each requested element belongs to, and keep its place in `call.index`."""
    if len(call.step.shape) != len(shape) or call.step.shape[dim] == 1:
        return call.index  # type: ignore[no-any-return]
    outer = list(np.unravel_index(call.index, call.step.shape))
    del outer[dim]
    kept = [n for d, n in enumerate(shape) if d != dim]
    return np.ravel_multi_index(outer, kept) if kept else np.zeros_like(call.index)


def _place_of(call: Any, dim: int) -> np.ndarray:
    if not call.step.shape:
        return np.zeros_like(call.index)
    return np.asarray(np.unravel_index(call.index, call.step.shape)[dim])


def _sorted_line(n: Any, line: Any) -> list[Any]:
    """Return the exact values in ascending order, NaN last."""
    numbers = [v for v in line if not _is_nan(v)]
    found: list[Any] = []
    for value in numbers:  # insertion by bisection: comparisons that cannot be decided ask for more precision
        low, high = 0, len(found)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if _less(n, value, found[middle]) else (middle + 1, high)
        found.insert(low, value)
    return found + [v for v in line if _is_nan(v)]


def _less(n: Any, a: Any, b: Any) -> bool:
    return bool(a is not b and n.less(a, b))


def _exact(choose: Any) -> Any:
    """Return the exact part: the element of the sorted line that `choose(call, k, n, missing)` names."""

    def exact(call: Any, lines: Any) -> Any:
        if not call.meta.dtype.is_floating_point:
            return integer_value(call)
        found = np.empty(len(call.index), dtype=object)
        for row in range(len(call.index)):
            line = _sorted_line(call.numbers, lines[row])
            missing = sum(_is_nan(v) for v in line)
            found[row] = line[choose(call, row, len(line), missing)]
        return found

    return exact


def _sort_place(
    default_descending: bool, position: int, name: str, dim_position: int, topk_sorted: int | None = None
) -> Any:
    def choose(call: Any, row: int, n: int, missing: int) -> int:
        if not call.step.shape:
            return 0
        if topk_sorted is not None and not call.step.argument(topk_sorted, "sorted", True):
            raise NotSeparatedError
        dim = int(call.step.argument(dim_position, "dim", -1)) % len(call.step.shape)
        place = int(_place_of(call, dim)[row])
        return n - 1 - place if call.step.argument(position, name, default_descending) else place

    return choose


def _kth_place(call: Any, row: int, n: int, missing: int) -> int:
    return int(call.step.argument(1, "k")) - 1


def _median_place(call: Any, row: int, n: int, missing: int) -> int:
    if call.step.name.startswith("aten.nanmedian"):
        return max(n - missing - 1, 0) // 2
    return n - missing if missing else (n - 1) // 2


FAMILY = Family()
FAMILY.add(
    Rule("aten.sort.default", sort, _line_cone(-1), _exact(_sort_place(False, 2, "descending", 1))),
    Rule("aten.sort.stable", sort, _line_cone(-1), _exact(_sort_place(False, 2, "descending", 1))),
    Rule("aten.topk.default", topk, _line_cone(-1, 2), _exact(_sort_place(True, 3, "largest", 2, 4))),
    Rule("aten.kthvalue.default", kthvalue, _line_cone(-1, 2), _exact(_kth_place)),
    Rule("aten.median.dim", median, _line_cone(-1), _exact(_median_place)),
    Rule("aten.nanmedian.dim", median, _line_cone(-1), _exact(_median_place)),
    Rule("aten.median.default", median_of_all, _line_cone(None), _exact(_median_place)),
    Rule("aten.nanmedian.default", median_of_all, _line_cone(None), _exact(_median_place)),
)
