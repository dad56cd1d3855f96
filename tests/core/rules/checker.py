"""The contract of a rule, proved on a function made of the operations at hand.

check_rule(function, inputs)      eager results covered, exact values within rad, planted errors caught, inputs kept
check_special(function, inputs)   eager results on infinities, NaN, zeros and subnormals never violated
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import flint
import numpy as np
import torch

from kernels_core.coverage import Element
from kernels_core.exact.numbers import NotRationalError, NotSeparatedError, Numbers
from kernels_core.exact.tier import Cone
from kernels_core.formats import format_of, ulp
from kernels_core.reference import Check, Result, reference

Tensor = torch.Tensor
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PRECISION = 400


def check_rule(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    dtypes: Sequence[torch.dtype] = DTYPES,
    *,
    gradient: bool = True,
    caught: float = 0.9,
    planted_ulp: float = 64.0,
    exact: bool = True,
    eager: bool = True,
) -> None:
    """Prove the rules that `function` meets, in every dtype.

    Args:
        function: made of PyTorch operations.
        inputs: its arguments; floating tensors are cast to each dtype.
        dtypes: in which PyTorch's eager kernels serve as correct ones.
        gradient: check the derivative too.
        caught: the least fraction of planted errors (of elements that are not zero) that must be violated.
        planted_ulp: size of the planted errors, in ulp of the exact value.
        exact: evaluate every element in FLINT and hold `mid` against it.
        eager: take PyTorch's 16-bit kernels as correct ones; False, where these round on the way, takes its float32
            kernel with one rounding of the result.
    """
    for dtype in dtypes:
        args = [a.to(dtype) if isinstance(a, Tensor) and a.is_floating_point() else a for a in inputs]
        before = [a.clone() if isinstance(a, Tensor) else a for a in args]
        results, actuals = evaluate(function, args, gradient, eager)
        for result, actual in zip(results, actuals, strict=True):
            assert_covered(result, actual, dtype)
            if exact:
                assert_contained(result)
            assert_tight(result, caught, planted_ulp)
        for kept, now in zip(before, args, strict=True):
            assert not isinstance(now, Tensor) or torch.equal(kept, now) or bool(now.isnan().any()), (
                "an input has changed"
            )


def check_special(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    *,
    gradient: bool = True,
    decided: float = 0.5,
) -> None:
    """Prove that eager results on special values are not violated, and that most elements are decided."""
    for dtype in dtypes:
        args = [a.to(dtype) if isinstance(a, Tensor) and a.is_floating_point() else a for a in inputs]
        for result, actual in zip(*evaluate(function, args, gradient), strict=True):
            verdict = result.verdict(actual)
            assert not bool((verdict == Element.VIOLATED).any()), _told(result, actual, verdict, dtype)
            share = float((verdict == Element.COVERED).double().mean()) if verdict.numel() else 1.0
            assert share >= decided, f"{result.name} {dtype}: only {share:.0%} decided"


def evaluate(
    function: Callable[..., Any], args: Sequence[Any], gradient: bool = True, eager: bool = True
) -> tuple[list[Result], list[Tensor]]:
    """Return the results of outputs and gradients with PyTorch's eager values (`eager`: see check_rule)."""
    ref = reference(function)
    names = list(ref.signature.parameters)
    check = Check(ref, dict(zip(names, args, strict=False)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wide = [a if eager or not isinstance(a, Tensor) or not a.is_floating_point() else a.float() for a in args]
        leaves = [a.clone().requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a for a in wide]
        value = function(*leaves)
        outputs = [value] if isinstance(value, Tensor) else list(value)
        metas = check.forward.output_metas.values()
        plain = [o.detach().to(m.dtype) for o, m in zip(outputs, metas, strict=True)]
        if not gradient:
            return list(check.outputs().values()), plain
        floating = [o for o in outputs if o.is_floating_point()]
        generator = torch.Generator().manual_seed(1)
        grads = [torch.randn(m.shape, generator=generator).to(m.dtype) for m in metas if m.dtype.is_floating_point]
        wrt = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
        found = torch.autograd.grad(
            floating, wrt, [g.to(o.dtype) for g, o in zip(grads, floating, strict=True)], allow_unused=True
        )
    dtypes = [a.dtype for a in args if isinstance(a, Tensor) and a.is_floating_point()]
    given = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(wrt, found, strict=True)]
    given = [g.to(dtype) for g, dtype in zip(given, dtypes, strict=True)]
    return list(check.both(grads).values()), [*plain, *given]


def assert_covered(result: Result, actual: Tensor, dtype: Any = "") -> None:
    """Every element is covered."""
    verdict = result.verdict(actual)
    assert bool((verdict == Element.COVERED).all()), _told(result, actual, verdict, dtype)


def _told(result: Result, actual: Tensor, verdict: Tensor, dtype: Any) -> str:
    index = tuple(int(i) for i in torch.nonzero(verdict != Element.COVERED)[0])
    bound = result.enclosure.bound_or_zero().expand(result.enclosure.shape)[index]
    found, mid = Element(int(verdict[index])).name, float(result.enclosure.mid[index])
    return (
        f"{result.name} {dtype} {list(index)}: {found}, got {float(actual[index])!r}, mid {mid!r}, "
        f"bound {float(bound)!r}; {int((verdict != Element.COVERED).sum())} elements"
    )


def assert_contained(result: Result) -> None:
    """The exact value of every element lies within rad of mid + low (or has its class)."""
    if result.source is None or not result.enclosure.floating or not result.meta.numel:
        return
    source = result.source
    cone = Cone(
        source.program, source.name, np.arange(result.meta.numel), source.inputs, source.integers, result.budget
    )
    try:
        values = cone.evaluate(Numbers(None))
    except (NotRationalError, NotSeparatedError):
        try:
            values = cone.evaluate(Numbers(PRECISION))
        except NotSeparatedError:
            return
    mid, bound = (
        result.enclosure.mid.reshape(-1),
        result.enclosure.bound_or_zero().expand(result.enclosure.shape).reshape(-1),
    )
    own = (
        result.rad.expand(result.enclosure.shape).reshape(-1) if isinstance(result.rad, Tensor) else bound * result.rad
    )
    low = torch.zeros_like(mid) if result.enclosure.low is None else result.enclosure.low.reshape(-1)
    for k, value in enumerate(values):
        _assert_near(value, float(mid[k]), float(low[k]), float(own[k]), f"{result.name}[{k}]")


def _assert_near(exact: Any, mid: float, low: float, rad: float, where: str) -> None:
    if isinstance(exact, (int, bool)):
        exact = flint.fmpq(int(exact))
    if not math.isfinite(mid) or not math.isfinite(rad):
        return
    if isinstance(exact, flint.arb):
        gap = abs(exact - flint.arb(mid) - flint.arb(low))
        assert not gap > flint.arb(rad), f"{where}: exact {exact}, mid {mid!r}, rad {rad!r}"
        assert gap.is_finite() or not exact.is_finite(), f"{where}: {exact}"
        return
    gap = abs(exact - flint.fmpq(*mid.as_integer_ratio()) - flint.fmpq(*low.as_integer_ratio()))
    assert gap <= flint.fmpq(*rad.as_integer_ratio()), (
        f"{where}: exact {float(exact.p) / float(exact.q)!r}, mid {mid!r}, rad {rad!r}"
    )


def assert_tight(result: Result, caught: float, planted_ulp: float) -> None:
    """An error of `planted_ulp` ulp of the exact value is violated on at least the fraction `caught` of elements."""
    if not result.enclosure.floating:
        return
    mid = result.enclosure.mid
    fmt = format_of(result.meta.dtype)
    planted = (mid + planted_ulp * ulp(mid, fmt)).to(result.meta.dtype)
    usable = mid.isfinite() & planted.isfinite() & (mid != 0)
    if not bool(usable.any()):
        return
    found = (result.verdict(planted) == Element.VIOLATED)[usable]
    assert float(found.double().mean()) >= caught, (
        f"{result.name}: {float(found.double().mean()):.0%} of planted errors caught"
    )
