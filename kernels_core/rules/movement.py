"""Operations that only move values: the same movement is applied to the bound; nothing is rounded."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernels_core.enclosure import Enclosure, nothing_known
from kernels_core.errors import TraceError
from kernels_core.filter.arithmetic import INFLATE, Local
from kernels_core.rules.casts import cast
from kernels_core.rules.cones import broadcast_index, functional, moved, moved_exact
from kernels_core.rules.operands import parts
from kernels_core.rules.record import Family, Rule


def move(local: Local, *args: Any, **kwargs: Any) -> Any:
    """Apply the operation to mid, bound and unsure alike (absent ones of several operands become zeros)."""
    return transported(local, args, kwargs)


def masked_select(local: Local, a: Enclosure, mask: Enclosure) -> Any:
    """Return the chosen elements; where the mask is uncertain, which they are is unknown."""
    value = transported(local, (a, mask), {}, indices=(1,))
    if mask.unsure is None or not bool(mask.unsure.any()):
        return value
    require_traced_shape(local, value)
    return nothing_known(value.mid)


def require_traced_shape(local: Local, value: Enclosure) -> None:
    """Refuse a choice among elements whose number the trace, in the reference's dtypes, saw otherwise.

    Raises:
        TraceError: roundings decide on the shape.
    """
    if value.shape == local.step.shape:
        return
    at = f" at {local.step.source}" if local.step.source else ""
    raise TraceError(
        f"how many elements the reference chooses{at} is decided by roundings\n"
        "give the mask as an input, or choose by `torch.where`, which keeps the shape"
    )


def transported(
    local: Local, args: Sequence[Any], kwargs: Any, indices: Sequence[int] = (), scalar: int | None = None
) -> Any:
    """Return the enclosure of values that the operation only moves.

    Args:
        local: of the step.
        args: of the operation.
        kwargs: of the operation.
        indices: positions of arguments that say where to, and are not moved themselves.
        scalar: position of a number that is filled in; one that the format cannot hold grants its rounding.
    """
    fill = 0.0 if scalar is None or len(args) <= scalar else held(local, args[scalar])
    run = functools.partial(_run, local, args, kwargs, indices)
    mid = run(lambda v: v.mid, {})
    first = mid[0] if isinstance(mid, (tuple, list)) else mid
    carried = [v for key, arg in [*enumerate(args), *kwargs.items()] if key not in indices for v in _enclosures(arg)]
    bound = unsure = None
    zero = {} if scalar is None else {scalar: 0}
    if first.is_floating_point() and (fill or any(parts(v)[1] is not None for v in carried)):
        bound = run(_bound, {} if scalar is None else {scalar: fill})
    if not first.is_floating_point() and any(v.unsure is not None for v in carried):
        unsure = run(
            lambda v: v.mid.new_zeros(v.shape, dtype=torch.bool) if v.unsure is None else v.unsure.expand(v.shape), zero
        )
    if not isinstance(mid, (tuple, list)):
        return Enclosure(mid, bound, unsure)
    return [
        Enclosure(m, None if bound is None else bound[k], None if unsure is None else unsure[k])
        for k, m in enumerate(mid)
    ]


def each_part(value: Enclosure, function: Callable[[torch.Tensor], torch.Tensor]) -> Enclosure:
    """Return the enclosure whose midpoint, bound and doubt are those of `value`, each moved by `function`."""
    bound = None if value.bound is None else function(value.bound.expand(value.shape))
    return Enclosure(
        function(value.mid), bound, None if value.unsure is None else function(value.unsure.expand(value.shape))
    )


def held(local: Local, value: Any) -> float:
    """Return the rounding that a constant grants where the result's format cannot hold it, else 0."""
    if not isinstance(value, (int, float)) or not local.nominal.is_floating_point or local.arithmetic.float64:
        return 0.0
    wanted = torch.tensor(float(value), dtype=torch.float64)
    if bool(wanted.to(local.dtype).to(torch.float64) == wanted) or not bool(wanted.isfinite()):
        return 0.0
    return local.u * abs(float(value)) * INFLATE + local.eta


def _bound(value: Enclosure) -> torch.Tensor:
    bound = parts(value)[1]
    return (
        torch.zeros(value.shape, dtype=torch.float64, device=value.mid.device)
        if bound is None
        else bound.expand(value.shape)
    )


def _enclosures(tree: Any) -> list[Enclosure]:
    if isinstance(tree, Enclosure):
        return [tree]
    return [v for item in tree for v in _enclosures(item)] if isinstance(tree, (list, tuple)) else []


def _run(
    local: Local,
    args: Sequence[Any],
    kwargs: Any,
    indices: Sequence[int],
    part: Callable[[Enclosure], torch.Tensor],
    scalars: Any,
) -> Any:
    def take(tree: Any, function: Callable[[Enclosure], torch.Tensor]) -> Any:
        if isinstance(tree, Enclosure):
            return function(tree)
        return type(tree)(take(item, function) for item in tree) if isinstance(tree, (list, tuple)) else tree

    taken = [scalars.get(k, take(a, (lambda v: v.mid) if k in indices else part)) for k, a in enumerate(args)]
    named = {k: take(v, part) for k, v in kwargs.items() if k not in ("dtype", "memory_format")}
    return functional(local.step)(*taken, **named)


def reshape(local: Local, a: Enclosure, *_: Any, **__: Any) -> Enclosure:
    """View, reshape and expand: the result's shape says all, within a tile too."""
    shape = local.shape
    change = torch.Tensor.expand if "expand" in local.step.name else torch.Tensor.reshape

    def part(value: torch.Tensor | None) -> torch.Tensor | None:
        return None if value is None else change(value, shape)

    bound = None if a.bound is None else a.bound.expand(a.shape)
    return Enclosure(change(a.mid, shape), part(bound), part(a.unsure))


def broadcast_in_dim(local: Local, a: Enclosure, shape: Any, dims: Any) -> Enclosure:
    """Give each dimension of the operand its place in the result, then expand."""

    def part(value: torch.Tensor) -> torch.Tensor:
        placed = [1] * len(shape)
        for own, dim in enumerate(dims):
            placed[dim] = value.shape[own]
        return value.reshape(placed).expand(shape)

    return Enclosure(
        part(a.mid),
        None if a.bound is None else part(a.bound.expand(a.shape)),
        None if a.unsure is None else part(a.unsure.expand(a.shape)),
    )


def strided(local: Local, a: Enclosure, *args: Any) -> Any:
    """as_strided of a tensor that is contiguous in the reference (the tracer sees to that)."""
    parts_ = [
        None if v is None else v.expand(a.shape).clone(memory_format=torch.contiguous_format)
        for v in (a.mid, a.bound, a.unsure)
    ]
    return move(local, Enclosure(*parts_), *args)  # type: ignore[arg-type]


def copy(local: Local, a: Enclosure, source: Enclosure, *_: Any) -> Enclosure:
    """Return `source` in the shape and dtype of `a`."""
    value = source
    if local.step.operand_metas[1].dtype is not local.nominal:
        value = cast_from(local, source, 1)
    return Enclosure(*(None if v is None else v.expand(a.shape) for v in (value.mid, value.bound, value.unsure)))  # type: ignore[arg-type]


def cast_from(local: Local, value: Enclosure, position: int) -> Enclosure:
    """Return the operand number `position` cast to the dtype of the result."""
    step = dataclasses.replace(local.step, operand_metas=(local.step.operand_metas[position],))
    return cast(Local(local.arithmetic, step, local.box), value)


def _copy_cone(call: Any) -> list[Any]:
    metas = call.step.operand_metas
    return [np.full((len(call.index), 0), -1), broadcast_index(metas[1], call.meta, call.index)]


def _copy_exact(call: Any, _: Any, source: Any) -> Any:
    return call.numbers.each(call.numbers.real, source) if call.meta.dtype.is_floating_point and len(source) else source


def same_leading(step: Any) -> int:
    """Leading dimensions that operand and result share: a view acts independently along these."""
    count = 0
    for mine, theirs in zip(step.shape, step.operand_metas[0].shape, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def before(position: int, name: str = "dim", default: int = 0) -> Any:
    """Return the `tiles` of an operation on one dimension: independent along those in front of it."""

    def tiles(step: Any) -> int:
        rank = max(len(step.shape), len(step.operand_metas[0].shape))
        return int(step.argument(position, name, default)) % rank if rank else 0

    return tiles


def _unless_empty(tiles: Any) -> Any:
    """Operands of another rank (empty ones, which `cat` ignores) cannot be tiled alike."""
    return lambda step: tiles(step) if all(len(m.shape) == len(step.shape) for m in step.operand_metas) else 0


def _before_all(position: int, name: str = "dims") -> Any:
    """Return the `tiles` of an operation on several dimensions."""

    def tiles(step: Any) -> int:
        dims = step.argument(position, name, ())
        rank = len(step.shape)
        return min((int(d) % rank for d in dims), default=0) if rank else 0

    return tiles


def _fixed_leading(step: Any) -> int:
    """Leading dimensions that a permutation leaves in place."""
    rank = len(step.shape)
    fixed = [int(d) % rank == k for k, d in enumerate(step.argument(1, "dims"))]
    return fixed.index(False) if False in fixed else rank


def _before_both(step: Any) -> int:
    """Leading dimensions in front of both that are exchanged."""
    rank = len(step.shape)
    return min(int(step.argument(1, "dim0")) % rank, int(step.argument(2, "dim1")) % rank) if rank else 0


def _not_last(count: int) -> Any:
    """Return the `tiles` of an operation on the last `count` dimensions."""
    return lambda step: max(0, len(step.shape) - count)


def _padded(local: Local, *args: Any, **kwargs: Any) -> Any:
    return transported(local, [*args, *kwargs.values()], {}, scalar=2)


def _padded_exact(call: Any, *operands: Any) -> Any:
    return moved_exact(call, *operands, fill=call.step.argument(2, "value", 0))


def _rule(name: str, bound: Any = move, **flags: Any) -> Rule:
    return Rule(name if name.startswith("prims.") else f"aten.{name}", bound, moved, moved_exact, **flags)


_LEFT = {"aligned": "left"}
_RESHAPES = (
    "view", "_unsafe_view", "reshape", "view_copy", "_reshape_copy",
)  # fmt: skip
_WHOLE = (
    "t.default", "t_copy.default", "t_.default", "squeeze.dim", "squeeze.dims", "squeeze.default",
    "squeeze_copy.default", "squeeze_copy.dim", "squeeze_copy.dims", "squeeze_.dim", "squeeze_.default",
    "squeeze_.dims", "unsqueeze_.default", "transpose_.default", "stack.default", "diagonal.default",
    "diagonal_copy.default", "diagonal_backward.default", "diagonal_scatter.default", "diag_embed.default",
    "unfold.default", "unfold_copy.default", "unbind.int", "unbind_copy.int", "split_copy.Tensor",
    "split_with_sizes_copy.default", "roll.default", "rot90.default", "repeat.default", "select_backward.default",
    "slice_backward.default", "pixel_shuffle.default", "pixel_unshuffle.default", "channel_shuffle.default",
    "im2col.default", "as_strided_scatter.default",
)  # fmt: skip
_SAME = (
    "clone.default", "alias.default", "alias_copy.default", "detach.default", "detach_copy.default", "lift.default",
    "lift_fresh.default", "lift_fresh_copy.default", "contiguous.default",
)  # fmt: skip
_SPLITS = (
    "split.Tensor", "split_with_sizes.default", "unsafe_split.Tensor", "unsafe_split_with_sizes.default",
    "chunk.default", "unsafe_chunk.default",
)  # fmt: skip
_BORDERS = (
    "reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default", "replication_pad1d.default",
    "replication_pad2d.default", "replication_pad3d.default",
)  # fmt: skip

FAMILY = Family()
FAMILY.add(
    *(_rule(f"{name}.default", reshape, tiles=same_leading, **_LEFT) for name in _RESHAPES),
    _rule("expand.default", reshape, tiles=lambda step: len(step.shape)),
    _rule("expand_copy.default", reshape, tiles=lambda step: len(step.shape)),
    _rule("unsqueeze.default", tiles=before(1), **_LEFT),
    _rule("unsqueeze_copy.default", tiles=before(1), **_LEFT),
    _rule("select.int", tiles=before(1), **_LEFT),
    _rule("select_copy.int", tiles=before(1), **_LEFT),
    _rule("slice.Tensor", tiles=before(1), **_LEFT),
    _rule("slice_copy.Tensor", tiles=before(1), **_LEFT),
    _rule("narrow_copy.default", tiles=before(1), **_LEFT),
    _rule("slice_scatter.default", tiles=before(2), **_LEFT),
    _rule("select_scatter.default", tiles=before(2), **_LEFT),
    _rule("cat.default", tiles=_unless_empty(before(1)), **_LEFT),
    _rule("permute.default", tiles=_fixed_leading, **_LEFT),
    _rule("permute_copy.default", tiles=_fixed_leading, **_LEFT),
    _rule("transpose.int", tiles=_before_both, **_LEFT),
    _rule("transpose_copy.int", tiles=_before_both, **_LEFT),
    _rule("flip.default", tiles=_before_all(1), **_LEFT),
    _rule("tril.default", tiles=_not_last(2), **_LEFT),
    _rule("triu.default", tiles=_not_last(2), **_LEFT),
    *(_rule(name) for name in _WHOLE),
    *(_rule(name) for name in _SPLITS),
    *(_rule(name) for name in _BORDERS),
    *(_rule(name, tiles=lambda step: len(step.shape)) for name in _SAME),
    _rule("as_strided.default", strided),
    _rule("as_strided_copy.default", strided),
    Rule("aten.constant_pad_nd.default", _padded, functools.partial(moved, scalar=2), _padded_exact),
    Rule("aten.masked_select.default", masked_select, functools.partial(moved, indices=(1,)), moved_exact),
    Rule("aten.copy.default", copy, _copy_cone, _copy_exact, lambda step: len(step.shape)),
    _rule("prims.broadcast_in_dim.default", broadcast_in_dim),
    _rule("prims.transpose.default"),
    _rule("prims.squeeze.default"),
    _rule("prims.view_of.default"),
    _rule("prims.collapse_view.default"),
    _rule("prims.split_dim.default"),
    _rule("prims.cat.default"),
    _rule("prims.rev.default"),
    _rule("prims.reshape.default"),
)
