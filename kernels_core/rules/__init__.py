"""The rules, one file per family of operations. `registry()` is the only way in."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from kernels_core.rules import (
    accumulated,
    activation_gradients,
    activations,
    affine_normalization,
    arithmetic,
    casts,
    choice,
    comparisons,
    convolution,
    creation,
    determinants,
    eigenvalues,
    extrema,
    extremum_weights,
    factorizations,
    functions,
    indexing,
    linear,
    matrix_functions,
    max_pooling,
    moments,
    movement,
    neighbours,
    normalization,
    orthogonal,
    pooling,
    powers,
    products,
    pseudoinverses,
    remainders,
    scans,
    scattered_extrema,
    searching,
    signs,
    softmax,
    softmax_backward,
    solving,
    sorting,
    special_functions,
    sums,
    transforms,
    vector_norms,
)
from kernels_core.rules.aliases import ALIASES
from kernels_core.rules.record import Family, Rule

FAMILIES: tuple[Family, ...] = (
    accumulated.FAMILY,
    activations.FAMILY,
    activation_gradients.FAMILY,
    arithmetic.FAMILY,
    casts.FAMILY,
    choice.FAMILY,
    comparisons.FAMILY,
    convolution.FAMILY,
    pooling.FAMILY,
    matrix_functions.FAMILY,
    max_pooling.FAMILY,
    creation.FAMILY,
    determinants.FAMILY,
    eigenvalues.FAMILY,
    factorizations.FAMILY,
    solving.FAMILY,
    extrema.FAMILY,
    functions.FAMILY,
    powers.FAMILY,
    extremum_weights.FAMILY,
    indexing.FAMILY,
    linear.FAMILY,
    moments.FAMILY,
    movement.FAMILY,
    neighbours.FAMILY,
    orthogonal.FAMILY,
    normalization.FAMILY,
    affine_normalization.FAMILY,
    products.FAMILY,
    pseudoinverses.FAMILY,
    remainders.FAMILY,
    scans.FAMILY,
    scattered_extrema.FAMILY,
    searching.FAMILY,
    signs.FAMILY,
    softmax.FAMILY,
    softmax_backward.FAMILY,
    sorting.FAMILY,
    special_functions.FAMILY,
    sums.FAMILY,
    transforms.FAMILY,
    vector_norms.FAMILY,
)


@functools.cache
def registry() -> Mapping[str, Rule]:
    """Return every rule by its ATen name ("aten.mul.Tensor").

    Raises:
        ValueError: two families have a rule of the same name.
    """
    rules: dict[str, Rule] = {}
    for family in FAMILIES:
        for name, rule in family.items():
            if name in rules:
                raise ValueError(f"two families have a rule for {name}")
            rules[name] = rule
    for alias, name in ALIASES.items():
        if alias not in rules and name in rules:
            rules[alias] = dataclasses.replace(rules[name], name=alias)
    return rules
