"""Hypotheses that the kernel computes a variant of the function: another gelu, epsilon, variance, padding."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from kernels_core.diagnosis.epsilons import HYPOTHESES as EPSILONS
from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis
from kernels_core.diagnosis.padding import HYPOTHESES as PADDING
from kernels_core.diagnosis.rewriting import Rewriting, varied

Tensor = torch.Tensor


def tanh_form(z: Tensor) -> Tensor:
    """Return the tanh that stands for erf(z) in the tanh form of gelu."""
    x = z * math.sqrt(2)
    return torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))


class _TanhGelu(Rewriting):
    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Replace erf by its tanh form, and gelu by its other form."""
        if name == "erf":
            self.used = True
            return tanh_form(args[0])
        if func is F.gelu:
            self.used = True
            other = "none" if kwargs.get("approximate", "none") == "tanh" else "tanh"
            return F.gelu(args[0], approximate=other)
        return NotImplemented


class _SigmoidGelu(Rewriting):
    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Replace gelu by x sigmoid(1.702 x)."""
        if func is F.gelu:
            self.used = True
            return args[0] * torch.sigmoid(1.702 * args[0])
        if name == "erf":
            self.used = True
            return 2 * torch.sigmoid(1.702 * math.sqrt(2) * args[0]) - 1
        return NotImplemented


class _Unbiased(Rewriting):
    """Variance over n - 1 in place of n, or the reverse."""

    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Scale the mean of squares; turn the correction of a variance round."""
        if name in ("var", "std", "var_mean", "std_mean"):
            self.used = True
            return self._turned(func, args, kwargs)
        if is_square(name, args):
            return self.remember(func(*args, **kwargs), "square")
        if name == "mean" and self.recall(args[0]) == "square":
            self.used = True
            result = func(*args, **kwargs)
            n = args[0].numel() // max(1, result.numel())
            return result * (n / (n - 1))
        return NotImplemented

    @staticmethod
    def _turned(func: Any, args: Any, kwargs: Any) -> Any:
        biased = kwargs.get("correction") == 0 or kwargs.get("unbiased") is False or False in args[2:3]
        rest = {k: v for k, v in kwargs.items() if k not in ("correction", "unbiased")}
        return func(*args[:2], **rest, correction=1 if biased else 0)


def is_square(name: str, args: Any) -> bool:
    """Return True for x.square(), x ** 2, x * x."""
    return name == "square" or (name == "pow" and args[1] == 2) or (name == "mul" and args[0] is args[1])


class _Constants(Rewriting):
    """Statistics of the tensor are taken for constants when it is differentiated."""

    def __init__(self, names: tuple[str, ...], squares: bool | None) -> None:
        super().__init__()
        self.names, self.squares = names, squares

    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Detach the results of the named reductions; of means only those of squares, or only the others."""
        if is_square(name, args):
            return self.remember(func(*args, **kwargs), "square")
        if name not in self.names:
            return NotImplemented
        if self.squares is not None and (self.recall(args[0]) == "square") != self.squares:
            return NotImplemented
        self.used = True
        result = func(*args, **kwargs)
        return result.detach() if isinstance(result, Tensor) else tuple(part.detach() for part in result)


_STATISTICS = ("mean", "var", "std", "var_mean", "std_mean")
_KEPT: dict[str, tuple[tuple[str, ...], bool | None]] = {
    "mean and variance": (_STATISTICS, None),
    "the mean": (("mean",), False),
    "the variance": (("mean", "var", "std"), True),
    "the sum in the denominator": (("sum", "softmax", "logsumexp"), None),
    "the largest value": (("amax", "max", "amin", "min"), None),
}


def _gelu(evidence: Evidence) -> Iterator[Candidate]:
    kinds: dict[str, Callable[[], Rewriting]] = {
        "the other form of gelu (tanh against erf)": _TanhGelu,
        "x sigmoid(1.702 x)": _SigmoidGelu,
    }
    for words, make in kinds.items():
        yield from varied(evidence, words, make, f"another variant: {{count}} those of {words}")


def _variance(evidence: Evidence) -> Iterator[Candidate]:
    sentence = "another variant: {count} those of a variance with n - 1 in place of n, or the reverse"
    yield from varied(evidence, "n - 1", _Unbiased, sentence)


def _constants(evidence: Evidence) -> Iterator[Candidate]:
    for words, (names, squares) in _KEPT.items() if evidence.gradient else ():
        sentence = f"a path is missing: {{count}} those with {words} treated as constant"
        yield from varied(evidence, ("constant", words), functools.partial(_Constants, names, squares), sentence)


HYPOTHESES = (
    Hypothesis("gelu", "erf replaced by its tanh form, or by x sigmoid(1.702 x)", _gelu),
    Hypothesis("statistics constant", "the derivative without the path through mean or variance", _constants),
    Hypothesis("variance", "n - 1 in place of n, or the reverse", _variance),
    *EPSILONS,
    *PADDING,
)
