"""Which ATen operations have a double-double evaluation. A program with any other is evaluated without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernels_core.doubles import activations, convolution, decisions, elementwise, extrema, reductions, softmax, writes
from kernels_core.doubles.record import Evaluation
from kernels_core.rules import movement, registry

OPERATIONS: Mapping[str, Evaluation] = {
    **elementwise.EVALUATIONS,
    **decisions.EVALUATIONS,
    **reductions.EVALUATIONS,
    **extrema.EVALUATIONS,
    **softmax.EVALUATIONS,
    **activations.EVALUATIONS,
    **writes.EVALUATIONS,
    **convolution.EVALUATIONS,
}

# Operations that decide by their operands: positions of the arguments that they decide by.
DECIDING: Mapping[str, tuple[int, ...]] = {
    **{f"aten.{name}.{kind}": (0, 1) for name in decisions.COMPARISONS for kind in ("Tensor", "Scalar")},
    **{f"prims.{name}.default": (0, 1) for name in decisions.COMPARISONS},
    "aten.sign.default": (0,), "aten.sgn.default": (0,), "prims.sign.default": (0,),
    **{f"aten.{name}_backward.default": (1,) for name in ("threshold", "softshrink", "hardshrink")},
    "exactref.extremum_weight": (0,),
    "aten._to_copy.default": (0,), "prims.convert_element_type.default": (0,),
}  # fmt: skip

# Rules that move bounds just as they move midpoints: position of the number that they fill in, if any.
MOVES: Mapping[Callable[..., Any], int | None] = {
    movement.move: None,
    movement.reshape: None,
    movement.broadcast_in_dim: None,
    movement.strided: None,
    registry()["aten.constant_pad_nd.default"].bound: 2,
    **{registry()[f"aten.{name}"].bound: None for name in ("gather.default", "index.Tensor", "_unsafe_index.Tensor",
                                                          "index_select.default", "embedding.default", "take.default")},
}  # fmt: skip
