"""Which reference of the catalogue computes what a kernel computes, judged on one set of inputs.

Nothing is decided by it: it proposes a reference, which the user sees in the spec and may change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exactref_cli.target import CATALOGUE
from kernels_core.kernel.callee import call, in_order
from kernels_core.reference import Reference
from kernels_core.references import catalogue
from kernels_core.tracing.arguments import bind, call_bound

AGREES = 2.0**-6  # of the largest value: a kernel that computes in bfloat16 still has its reference


@dataclasses.dataclass(frozen=True)
class Fit:
    """References whose signature takes the kernel's inputs and gives outputs of its shapes.

    Attributes:
        agreeing: "exactref:matmul", nearest values first; of equal ones the plainer name.
        differing: the others.
    """

    agreeing: tuple[str, ...]
    differing: tuple[str, ...]


def fit(kernel: Callable[..., Any], inputs: Mapping[str, Any]) -> Fit:
    """Return the references of the catalogue that fit; none where the kernel raises on these inputs."""
    try:
        actual = _values(lambda: call(kernel, inputs, inputs))
    except (Exception, SystemExit):
        return Fit((), ())
    errors = {name: _error(entry, in_order(kernel, inputs), actual) for name, entry in _entries(catalogue())}
    found = sorted((error, place, name) for place, (name, error) in enumerate(errors.items()) if error is not None)
    agreeing = tuple(name for error, _, name in found if error <= AGREES)
    return Fit(agreeing, tuple(name for error, _, name in found if error > AGREES))


def same_dtypes(kernel: Callable[..., Any], entry: Reference, inputs: Mapping[str, Any]) -> bool:
    """Return True where a kernel and a reference return the same dtypes for these inputs."""
    try:
        actual = _values(lambda: call(kernel, inputs, inputs))
        exact = _values(lambda: call_bound(entry.function, bind(entry.function, in_order(kernel, inputs), {})))
    except (Exception, SystemExit):
        return False
    return [t.dtype for t in actual] == [t.dtype for t in exact]


def _entries(known: Mapping[str, Reference], before: str = f"{CATALOGUE}:") -> Iterator[tuple[str, Reference]]:
    """Yield every reference, and then the algorithms of each, under the names of specs."""
    for name, entry in known.items():
        yield before + name, entry
    for name, entry in known.items():
        yield from _entries(entry.algorithms, f"{before}{name}.")


def _error(entry: Reference, arguments: Sequence[Any], actual: Sequence[torch.Tensor]) -> float | None:
    """Return the largest difference over the largest value, None where the reference does not fit."""
    wide = pytree.tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, list(arguments))
    try:
        exact = _values(lambda: call_bound(entry.function, bind(entry.function, wide, {})))
    except Exception:
        return None
    if [t.shape for t in exact] != [t.shape for t in actual]:
        return None
    return max((_difference(a, b) for a, b in zip(actual, exact, strict=True)), default=None)


def _difference(actual: torch.Tensor, exact: torch.Tensor) -> float:
    if not torch.equal(actual.isfinite(), exact.isfinite()):
        return math.inf
    apart = (actual.double() - exact.double()).abs().nan_to_num(0.0)
    largest = exact.abs().nan_to_num(0.0, 0.0, 0.0).max() if exact.numel() else torch.zeros(())
    return float(apart.max() / largest) if float(largest) else float(apart.max() if apart.numel() else 0.0)


def _values(function: Callable[[], Any]) -> list[torch.Tensor]:
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(io.StringIO()):
            leaves = pytree.tree_leaves(function())
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
