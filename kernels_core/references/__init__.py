"""The catalogue: references under the names that users and specs call them by.

An algorithm is the same function by another route with other roundings (`layer_norm.one_pass`), or a named form of it
(`gelu.tanh`). To add a reference, write a plain PyTorch function in the file of its family and give it an entry there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from kernels_core.reference import Reference
from kernels_core.references import (
    activations,
    attention,
    channel_norms,
    convolutions,
    experts,
    losses,
    masking,
    matmul,
    norms,
    optimisers,
    positions,
    quantisation,
    recurrences,
    softmax,
    sparse_softmax,
)

FAMILIES = (
    *(matmul, convolutions, experts, softmax, sparse_softmax, losses, norms, channel_norms, attention, recurrences),
    *(positions, activations, masking, quantisation, optimisers),
)


@functools.cache
def catalogue() -> Mapping[str, Reference]:
    """Return the references by name, in the order in which `exactref list` shows them."""
    return MappingProxyType({name: entry for family in FAMILIES for name, entry in family.ENTRIES.items()})
