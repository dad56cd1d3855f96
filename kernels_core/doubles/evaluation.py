"""One step of a program in double-double arithmetic, beside the filter's rule.

The rule says what is granted and what is infinite or NaN; the double-double value says where the exact value is:

    |mid + low - exact| <= rad,   mid = RN(mid + low)

so that the rules of later steps see midpoints m that are off by half an ulp, whatever cancelled before. A rule's
F_m(b), evaluated there, stands for F at the exact value x, |m - x| <= u |m| + rad:

    rad <= t b, t = 2^-26        |f(l) - f(x)| <= F_m(b + rad) + F_m(rad) <= F_m((1 + 2 t) b), as F is star-shaped
    u |m|                        F_x(b) <= (1 + c u) F_m(b), c the condition of F in m, at most 2^26

So roundings are granted 2^-12 of themselves more (`arithmetic.NEARLY_EXACT`): with C_i the bounds so computed and N_i
those wanted, C_i >= (1 + 2 t + c u)^(d - i) N_i by induction over d steps, d < 2^12. Where an operand's radius is not
so small, what is computed from it is not known.

Where the rule's bound is zero no legal evaluation rounds, float64's own included: the value is exact as it is. Where a
double-double value is not finite, nothing is known (`rad` is infinite) and float64's midpoint stays.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from kernels_core.doubles.by_element import evaluated, lost
from kernels_core.doubles.number import INFLATE, DoubleDouble, is_zero
from kernels_core.doubles.operations import DECIDING, MOVES, OPERATIONS
from kernels_core.doubles.record import Call, Truth
from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.filter.arithmetic import Local
from kernels_core.program import Program, Step
from kernels_core.rules import registry

Tensor = torch.Tensor
PASSED_ON = (
    "exactref.factored",
    "exactref.regrouped.default",
    "aten._to_copy.default",
    "prims.convert_element_type.default",
)  # as they are
_SMALL = 2.0**-26  # t of the module
FREE_SIGNS = ("aten._linalg_eigh.default", "aten._linalg_svd.default")


def evaluates(program: Program) -> bool:
    """Return True where every step has a double-double evaluation.

    What a format without infinities stores is no function of real numbers, and vectors with free signs take several
    runs (rewrites/free_signs.py).
    """
    steps = [step for step in program.steps if step.op is not None]
    metas = [meta for step in steps for meta in step.metas if meta is not None]
    narrow = any(meta.dtype.is_floating_point and meta.dtype.itemsize == 1 for meta in metas)
    return not narrow and all(step.name not in FREE_SIGNS for step in steps)


def by_element(step: Step) -> bool:
    """Return True where FLINT evaluates the step, on whole tensors."""
    if step.name in OPERATIONS or registry()[step.name].bound in MOVES:
        return False
    metas = [meta for meta in (*step.metas, *step.operand_metas) if meta is not None]
    return any(meta.dtype.is_floating_point for meta in metas)


def about_mid(step: Step, args: Any) -> Any:
    """Return the arguments of a rule that decides by them, with bounds around mid instead of the exact value.

    |legal - mid| <= bound + |low| + rad. Where a float64 value is compared, or cut off, half an ulp counts; where it is
    rounded again, its rounding takes care of that.
    """
    wanted = DECIDING.get(step.name, ())
    return tuple(_about_mid(arg) if place in wanted else arg for place, arg in enumerate(args))


def _about_mid(value: Any) -> Any:
    if not isinstance(value, Enclosure) or not value.floating or value.low is None or value.rad is None:
        return value
    bound = (value.bound_or_zero() + value.low.abs() + value.rad) * INFLATE
    return dataclasses.replace(value, bound=bound)


def refined(
    step: Step, args: Any, kwargs: Any, operands: list[Enclosure], results: list[Enclosure | None], local: Local
) -> list[Enclosure | None]:
    """Return the results of a step, which are those of its rule, with their double-double values."""
    decides = step.name not in PASSED_ON and registry()[step.name].bound not in MOVES
    if decides and any(map(_wide, operands)):
        args, kwargs, operands = (_narrow(tree) for tree in (args, kwargs, operands))
    values = [value for value in results if value is not None]
    if all(op.low is None and op.rad is None for op in operands) and step.name not in OPERATIONS:
        if all(value.bound is None for value in values):
            return results
    if by_element(step):
        results = _integers_about_mid(step, args, kwargs, results, local)
        found = evaluated(step, args, kwargs, operands, results)
    elif step.name in OPERATIONS:
        found = OPERATIONS[step.name](Call(local, values), *args, **kwargs)
    elif any(not op.floating and op.rad is not None for op in operands):
        found = [lost(value) for value in values]
    elif registry()[step.name].bound in MOVES:
        found = _moved(step, args, kwargs, local, values)
    else:
        return results
    numbers = iter(found if isinstance(found, list) else [found])
    return [None if value is None else joined(value, next(numbers)) for value in results]


def _wide(value: Enclosure) -> bool:
    """Return True where a radius is more than 2^-26 of its bound; extrema are compared first, which takes one look."""
    if not value.floating or value.rad is None or value.bound is None or is_zero(value.rad) or not value.mid.numel():
        return False
    if float(value.rad.amax()) <= float(value.bound.amin()) * _SMALL:
        return False
    return bool((value.rad > value.bound * _SMALL).any())


def _narrow(tree: Any) -> Any:
    """Return operands of which nothing is known where their radius is more than 2^-26 of their bound."""
    if isinstance(tree, Enclosure):
        if not _wide(tree) or tree.rad is None or tree.bound is None:
            return tree
        return dataclasses.replace(tree, rad=tree.rad.masked_fill(tree.rad > tree.bound * _SMALL, torch.inf))
    if isinstance(tree, dict):
        return {key: _narrow(value) for key, value in tree.items()}
    return type(tree)(map(_narrow, tree)) if isinstance(tree, (list, tuple)) else tree


def _integers_about_mid(
    step: Step, args: Any, kwargs: Any, results: list[Enclosure | None], local: Local
) -> list[Enclosure | None]:
    """Return the results with integers as the rule decides them where bounds hold around mid (`about_mid`)."""
    if all(value is None or value.floating for value in results):
        return results
    found = registry()[step.name].bound(local, *_tree_about_mid(args), **_tree_about_mid(kwargs))
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    return [old if old is None or old.floating else new for old, new in zip(results, found, strict=True)]


def _tree_about_mid(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _tree_about_mid(value) for key, value in tree.items()}
    return type(tree)(map(_tree_about_mid, tree)) if isinstance(tree, (list, tuple)) else _about_mid(tree)


def _moved(step: Step, args: Any, kwargs: Any, local: Local, values: list[Enclosure]) -> list[DoubleDouble | Truth]:
    """Let the rule, which moves bounds like midpoints, move radii like low parts and these like midpoints."""
    rule, fill = registry()[step.name].bound, MOVES[registry()[step.name].bound]
    unfilled = [0 if place == fill else arg for place, arg in enumerate(args)]
    low = rule(local, *_low_parts(unfilled), **_low_parts(kwargs))
    pairs = zip(values, low if isinstance(low, (tuple, list)) else [low], strict=True)
    return [DoubleDouble(v.mid, x.mid, x.bound_or_zero()) if v.floating else Truth(v.mid, None) for v, x in pairs]


def _low_parts(tree: Any) -> Any:
    """Return enclosures with the low part in the place of mid and the radius in that of the bound."""
    if isinstance(tree, Enclosure) and tree.floating:
        zero = tree.mid.new_zeros(()).expand(tree.shape)
        low, rad = (zero if part is None else part.expand(tree.shape) for part in (tree.low, tree.rad))
        return Enclosure(low, rad)
    if isinstance(tree, dict):
        return {key: _low_parts(value) for key, value in tree.items()}
    return type(tree)(_low_parts(item) for item in tree) if isinstance(tree, (list, tuple)) else tree


def joined(value: Enclosure, found: DoubleDouble | Truth) -> Enclosure:
    """Return the rule's enclosure around the double-double value."""
    if isinstance(found, Truth):
        doubt = found.doubt
        rad = None
        if doubt is not None and bool(doubt.any()):
            rad = torch.zeros(value.shape, dtype=torch.float64, device=value.mid.device)
            rad = rad.masked_fill_(doubt.expand(value.shape), torch.inf)
        return Enclosure(found.value, None, value.unsure, None, rad)
    if value.bound is None:
        return Enclosure(value.mid)
    hi, low, rad = (part.expand(value.shape) for part in (found.hi, found.lo, found.rad))
    if not all(is_zero(part) or all_finite(part) for part in (hi, low, rad)):
        known = (hi + low + rad).isfinite()
        hi, low, rad = (
            torch.where(known, hi, value.mid),
            torch.where(known, low, 0.0),
            torch.where(known, rad, torch.inf),
        )
    if value.bound.numel() and not float(value.bound.amin()) > 0:
        certain = value.bound == 0
        hi, low, rad = torch.where(certain, value.mid, hi), low.masked_fill(certain, 0.0), rad.masked_fill(certain, 0.0)
    return Enclosure(hi, value.bound, None, low, rad)
