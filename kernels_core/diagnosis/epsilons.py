"""Hypotheses about epsilon: left out, another value, outside the root, added to the count."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis
from kernels_core.diagnosis.rewriting import Rewriting, varied

_LARGEST = 1e-2  # a constant added that is no larger is taken for an epsilon
_VALUES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12)


class _Scale(Rewriting):
    """Epsilon replaced by another number."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Add the other number."""
        if not adds_epsilon(name, args) or any(isinstance(a, float) and a == self.value for a in args):
            return NotImplemented
        self.used = True
        return func(*(self.value if isinstance(a, float) else a for a in args), **kwargs)


class _OutsideRoot(Rewriting):
    """1 / (sqrt(v) + eps) in place of 1 / sqrt(v + eps)."""

    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Remember sums with epsilon; take the root of the other summand."""
        if adds_epsilon(name, args):
            eps = next(a for a in args if isinstance(a, float))
            value = next(a for a in args if isinstance(a, torch.Tensor))
            return self.remember(func(*args, **kwargs), (value, eps))
        known = self.recall(args[0]) if args else None
        half = name == "pow" and args[1] in (0.5, -0.5)
        if known is None or not (name in ("sqrt", "rsqrt") or half):
            return NotImplemented
        self.used = True
        root = torch.sqrt(known[0]) + known[1]
        return 1 / root if name == "rsqrt" or (half and args[1] < 0) else root


class _AddedToCount(Rewriting):
    """sum / (n + eps) in place of sum / n + eps."""

    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Remember means with their count; scale them where epsilon would be added."""
        if name == "mean":
            result = func(*args, **kwargs)
            return self.remember(result, args[0].numel() // max(1, result.numel()))
        if not adds_epsilon(name, args):
            return NotImplemented
        mean = next(a for a in args if isinstance(a, torch.Tensor))
        count = self.recall(mean)
        if count is None:
            return NotImplemented
        self.used = True
        return mean * (count / (count + next(a for a in args if isinstance(a, float))))


def adds_epsilon(name: str, args: Any) -> bool:
    """Return True where a small positive number is added to a tensor."""
    small = any(isinstance(a, float) and 0 < a <= _LARGEST for a in args[:2])
    return name in ("add", "radd") and small and any(isinstance(a, torch.Tensor) for a in args[:2])


def _placed(evidence: Evidence) -> Iterator[Candidate]:
    for words, make in (("outside of the root", _OutsideRoot), ("added to the number of elements", _AddedToCount)):
        yield from varied(evidence, words, make, f"epsilon elsewhere: {{count}} those with epsilon {words}")


def _valued(evidence: Evidence) -> Iterator[Candidate]:
    yield from varied(evidence, "no epsilon", functools.partial(_Scale, 0.0),
                      "epsilon left out: {count} those without it")  # fmt: skip
    for value in _VALUES:
        sentence = f"another epsilon: {{count}} those with epsilon {value:g}"
        yield from varied(evidence, ("epsilon", value), functools.partial(_Scale, value), sentence)


HYPOTHESES = (
    Hypothesis("epsilon elsewhere", "outside the root, or added to the count", _placed),
    Hypothesis("another epsilon", "none, or one of the usual values", _valued),
)
