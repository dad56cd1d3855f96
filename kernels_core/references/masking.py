"""Dropout with a mask that is given, so that nothing is random."""

from __future__ import annotations

from torch import Tensor

from kernels_core.decompositions.compute_format import wide
from kernels_core.reference import Reference


def dropout(input: Tensor, mask: Tensor, p: float = 0.5) -> Tensor:
    """Return x / (1 - p) where the mask is True (or not zero), else 0; an infinity that is dropped is 0 too.

    Args:
        input: of any shape.
        mask: True where the element is kept.
        p: the probability with which elements were dropped.
    """
    return (wide(input) * (1 / (1 - p))).masked_fill(mask == 0, 0.0).to(input.dtype)


ENTRIES = {"dropout": Reference(dropout, "dropout")}
