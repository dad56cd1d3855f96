"""Hypotheses about a mask: its diagonal is moved by one, or by the difference of the two lengths."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis
from kernels_core.diagnosis.rewriting import Rewriting, varied

_COMPARISONS = ("le", "lt", "ge", "gt")


class _Diagonal(Rewriting):
    """Triangles and comparisons of indices with their diagonal moved."""

    def __init__(self, moved: Callable[[int, int], int]) -> None:
        """Move by `moved(rows, columns)`."""
        super().__init__()
        self.moved = moved

    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Move the diagonal of tril and triu, and one side of an integer comparison that has rows and columns."""
        if name in ("tril", "triu") and args and args[0].dim() >= 2:
            self.used = True
            diagonal = args[1] if len(args) > 1 else kwargs.get("diagonal", 0)
            return func(args[0], diagonal + self.moved(*args[0].shape[-2:]))
        if name in _COMPARISONS and len(args) == 2 and all(_indices(a) for a in args):
            shape = torch.broadcast_shapes(*(a.shape for a in args))
            if len(shape) >= 2:
                self.used = True
                return func(args[0], args[1] + self.moved(*shape[-2:]))
        return NotImplemented


def _indices(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and value.dtype is not torch.bool


_MOVES: dict[str, Callable[[int, int], int]] = {
    "by one": lambda rows, columns: 1,
    "by one the other way": lambda rows, columns: -1,
    "by the difference of the two lengths": lambda rows, columns: columns - rows,
    "by the difference of the two lengths, the other way": lambda rows, columns: rows - columns,
}


def _moved(evidence: Evidence) -> Iterator[Candidate]:
    for words, moved in _MOVES.items():
        sentence = f"mask alignment: {{count}} those of a mask whose diagonal is moved {words}"
        yield from varied(evidence, ("diagonal", words), functools.partial(_Diagonal, moved), sentence)


HYPOTHESES = (Hypothesis("mask alignment", "the diagonal of a mask moved", _moved),)
