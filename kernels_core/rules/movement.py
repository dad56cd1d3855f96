"""Operations that only move values: the same movement is applied to the bound; nothing is rounded."""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.arithmetic import Local
from kernels_core.enclosure import Enclosure
from kernels_core.rules.cones import moved, moved_exact
from kernels_core.rules.record import Family, Rule


def move(local: Local, *args: Any, **kwargs: Any) -> Enclosure:
    """Apply the operation to mid, bound and unsure alike (absent ones of several operands become zeros)."""
    mid = _call(local, args, kwargs, lambda v: v.mid)
    found = [v for v in _enclosures((args, kwargs)) if v.floating or not mid.is_floating_point()]
    bound = unsure = None
    if any(v.bound is not None for v in found):
        bound = _call(local, args, kwargs, lambda v: v.bound_or_zero().expand(v.shape) if v.floating else v.mid)
    if any(v.unsure is not None for v in found):
        unsure = _call(local, args, kwargs, lambda v: v.unsure if v.unsure is not None else torch.zeros_like(v.mid, dtype=torch.bool))
    return Enclosure(mid, bound, unsure)


def _enclosures(tree: Any) -> list[Enclosure]:
    if isinstance(tree, Enclosure):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [v for item in tree for v in _enclosures(item)] if isinstance(tree, (list, tuple)) else []


def _call(local: Local, args: Any, kwargs: Any, part: Any) -> Any:
    def take(tree: Any) -> Any:
        if isinstance(tree, Enclosure):
            return part(tree)
        if isinstance(tree, (list, tuple)):
            return type(tree)(take(item) for item in tree)
        return tree

    return local.step.op(*take(args), **{k: take(v) for k, v in kwargs.items()})  # type: ignore[misc]


def reshape(local: Local, a: Enclosure, *_: Any, **__: Any) -> Enclosure:
    """View, reshape and expand: the result's shape says all, within a tile too."""
    shape = local.shape
    change = torch.Tensor.expand if "expand" in local.step.name else torch.Tensor.reshape

    def part(value: torch.Tensor | None) -> torch.Tensor | None:
        return None if value is None else change(value, shape)

    bound = None if a.bound is None else a.bound.expand(a.shape)
    return Enclosure(change(a.mid, shape), part(bound), part(a.unsure))


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


def _rule(name: str, bound: Any = move, **flags: Any) -> Rule:
    return Rule(f"aten.{name}", bound, moved, moved_exact, **flags)


FAMILY = Family()
FAMILY.add(
    *(_rule(f"{name}.default", reshape, tiles=same_leading, aligned="left") for name in ("view", "_unsafe_view", "reshape")),
    _rule("expand.default", reshape, tiles=lambda step: len(step.shape)),
    _rule("unsqueeze.default", tiles=before(1), aligned="left"),
    _rule("select.int", tiles=before(1), aligned="left"),
    _rule("slice.Tensor", tiles=before(1), aligned="left"),
    _rule("cat.default", tiles=before(1), aligned="left"),
    _rule("permute.default"), _rule("transpose.int"), _rule("t.default"),
    _rule("squeeze.dim"), _rule("squeeze.dims"), _rule("squeeze.default"), _rule("stack.default"), _rule("flip.default"),
    _rule("clone.default"), _rule("alias.default"), _rule("detach.default"), _rule("lift_fresh_copy.default"),
)  # fmt: skip
