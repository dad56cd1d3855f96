"""Is what a mutant returns what a correct kernel returns, whose float32 sums run in another order?

Then no check may flag it: any order of a sum is legal. A sum of 2^16 float32 terms of one sign errs by up to 5e-4 in an
order chosen for it (orders.py). The kernel is run again without the fault, and each sum that the fault changed is
replaced by the sum of its own, undamaged terms in such an order, or another sum that is added to it takes the whole
error upon itself. The proof is that this run returns the mutant's results bit for bit; anything less proves nothing and
leaves the mutant missed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from kernels_core.kernel.call import KernelRaisedError
from kernels_core.power.orders import closest_sum
from kernels_core.power.steps import Fault, Steps
from kernels_core.rules.cones import normal_dims

Tensor = torch.Tensor
Results = Mapping[str, Tensor | None]
Run = Callable[[], dict[str, Tensor | None]]
Wanted = Mapping[int, Tensor]
SUMS = ("aten.sum", "aten.mean")
MOST = 64  # sums in one operation that are worth a search
_BISECTIONS = 40


class Sums(TorchDispatchMode):
    """Records the results of float32 sums, or gives each one that it is told to an order of its terms."""

    def __init__(self, wanted: Mapping[int, Tensor] | None = None) -> None:
        """Record, or bring the sums of these numbers as close to these values as their terms allow."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.wanted: Mapping[int, Tensor] = wanted or {}
        self.found: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Perform the operation; exchange the result of a sum."""
        result, name = func(*args, **(kwargs or {})), str(func).rpartition(".")[0]
        if name in SUMS and result.dtype is args[0].dtype is torch.float32:
            with _disable_current_modes():  # what is done here is no operation of the kernel
                self.exchange(args, result, self.wanted.get(len(self.found)), mean=name == "aten.mean")
                self.found.append(result.clone())
        return result

    def exchange(self, args: Any, result: Tensor, wanted: Tensor | None, *, mean: bool) -> None:
        """Give the result another order of its terms, in place, where something else is wanted."""
        if wanted is not None:
            result.copy_(_in_other_orders(args, result, wanted, mean=mean))


def _in_other_orders(args: Any, result: Tensor, wanted: Tensor, *, mean: bool) -> Tensor:
    """Return sequential sums (means) of the same terms, those that differ from `wanted` in an order close to it."""
    terms, flat = _terms(args, result), result.clone().reshape(-1)
    differs = torch.nonzero(flat != wanted.reshape(-1)).reshape(-1).tolist()
    for place in differs if len(differs) <= MOST else ():
        row, divisor = terms[place].numpy(), np.float32(terms.shape[1] if mean else 1)
        total = closest_sum(row, float(np.float32(float(wanted.reshape(-1)[place]) * float(divisor))))
        flat[place] = float(np.float32(total) / divisor)
    return flat.reshape(result.shape)


def _terms(args: Any, result: Tensor) -> Tensor:
    """Return the terms of each sum, [sums, terms]."""
    values, dims = args[0], normal_dims(args[1] if len(args) > 1 else None, args[0].dim())
    kept = [d for d in range(values.dim()) if d not in dims]
    terms: Tensor = values.permute(*kept, *dims).reshape(result.numel(), -1).contiguous()
    return terms


def returned_in_another_order(run: Run, actual: Results, fault: Fault | None) -> bool:
    """Return True where the kernel returns `actual` bit for bit with some of its float32 sums in another order.

    Args:
        run: the kernel.
        actual: what the mutant returns.
        fault: of one operation; None for one in a finished result.
    """
    try:
        plain = _recorded(run, None)
        if fault is not None:
            damaged = _recorded(run, fault)
            changed = {n: new for n, (old, new) in enumerate(zip(plain, damaged, strict=True)) if not old.equal(new)}
            return any(_same(_with(run, wanted), actual) for wanted in _placements(run, actual, plain, changed))
        return any(_scalar_reaches(run, actual, n, value) for n, value in enumerate(plain) if value.numel() == 1)
    except (KernelRaisedError, ValueError):
        return False


def _placements(run: Run, actual: Results, plain: Sequence[Tensor], changed: Mapping[int, Tensor]) -> Iterator[Wanted]:
    """Yield what sums have to be: the changed ones what the fault made of them, or one other of their size instead."""
    if changed:
        yield changed
    for number, new in changed.items() if len(changed) == 1 else ():
        error = new.double() - plain[number].double()
        for other, value in enumerate(plain):
            if other != number and value.numel() == error.numel():
                for sign in (1, -1):
                    wanted = {other: (value.double() + sign * error.reshape(value.shape)).float()}
                    if _gives(run, wanted, actual):
                        yield wanted


def _recorded(run: Run, fault: Fault | None) -> list[Tensor]:
    sums = Sums()
    with Steps(fault) if fault is not None else contextlib.nullcontext(), sums:
        run()
    return sums.found


def _with(run: Run, wanted: Mapping[int, Tensor]) -> dict[str, Tensor | None]:
    with Sums(wanted):
        return run()


class _Put(Sums):
    """Puts a number in the place of a sum, whether an order gives it or not."""

    def exchange(self, args: Any, result: Tensor, wanted: Tensor | None, *, mean: bool) -> None:
        """Put it there."""
        if wanted is not None:
            result.copy_(wanted)


def _gives(run: Run, sums: Wanted, actual: Results) -> bool:
    """Return True where these values of sums, whether an order gives them or not, lead to `actual`."""
    with _Put(sums):
        return _same(run(), actual)


def _scalar_reaches(run: Run, actual: Results, number: int, natural: Tensor) -> bool:
    """Return True where an order of one scalar sum gives the only result that is damaged.

    What the sum has to be is found by bisection between its own value and the nearest that gives the result.
    """

    def gives(value: Tensor) -> bool:
        return _gives(run, {number: value}, actual)

    far = next((value for value in _guesses(run, actual, natural) if gives(value)), None)
    if far is None:
        return False
    near, steps = natural.double(), 0
    far = far.double()
    while steps < _BISECTIONS and near.float() != far.float():
        middle, steps = ((near + far) / 2).float().double(), steps + 1
        if middle in (near, far):
            break
        near, far = (near, middle) if gives(middle.float()) else (middle, far)
    return _same(_with(run, {number: far.float()}), actual)


def _guesses(run: Run, actual: Results, natural: Tensor) -> list[Tensor]:
    """Return values of a sum that may give the damaged result: the result is the sum times a constant, rounded."""
    undamaged = run()
    changed = [n for n, value in actual.items() if not _equal(value, undamaged[n])]
    if len(changed) != 1 or (value := actual[changed[0]]) is None or value.numel() != 1:
        return []
    before = undamaged[changed[0]]
    ratio = math.nan if before is None or not float(before) else float(value) / float(before)
    guess, found = (natural.double() * ratio).float(), list[Tensor]()
    for _ in range(3):
        found.append(guess)
        guess = torch.nextafter(guess, natural)
    return found


def _same(found: Results, actual: Results) -> bool:
    return all(_equal(value, found[name]) for name, value in actual.items())


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b if a is None or b is None else bool(torch.equal(a.nan_to_num(), b.nan_to_num()))
