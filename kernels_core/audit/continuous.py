"""Which results follow their steps' roundings continuously: small errors inside make small errors outside.

A comparison of computed values, a sign or a rounding to an integer may fall out differently in two honest kernels, and
its element then differs by far more than any rounding, at one element in a million. An audit of single elements must
not look at such results. A result is continuous where every step on the way to it that reads a computed value

    returns floating values, so is no comparison, and is one of `CONTINUOUS` (any step may read what was only moved).

The list names what is known to be continuous, so an operation that it lacks is taken for discrete.
"""

from __future__ import annotations

import torch

from kernels_core.program import Program, Ref, Step
from kernels_core.rules import casts, creation, movement

_ELEMENTWISE = (
    "add", "sub", "rsub", "mul", "div", "neg", "reciprocal", "pow", "square", "sqrt", "rsqrt", "exp", "exp2", "expm1",
    "log", "log1p", "log2", "log10", "logaddexp", "sigmoid", "tanh", "erf", "erfc", "sin", "cos", "gelu", "silu",
    "softplus", "log_sigmoid_forward", "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward",
    "softplus_backward", "log_sigmoid_backward", "where", "masked_fill", "abs", "relu", "clamp", "clamp_min",
    "clamp_max", "maximum", "minimum", "lerp", "addcmul", "addcdiv", "factored", "regrouped", "accumulated",
)  # fmt: skip
_SUMMING = (
    "sum", "mean", "cumsum", "mm", "bmm", "mv", "dot", "vdot", "addmm", "baddbmm", "addmv", "convolution",
    "convolution_backward", "softmax", "log_softmax", "logsumexp", "softmax_backward_data",
    "log_softmax_backward_data", "amax", "amin", "index_select", "gather", "scatter", "scatter_add", "index_add",
    "index_put", "embedding_dense_backward",
)  # fmt: skip
CONTINUOUS = frozenset((*_ELEMENTWISE, *_SUMMING))


def continuous(program: Program) -> set[str]:
    """Return the names of the results that depend on roundings continuously."""
    computed, discrete = set[Ref](), set[Ref]()
    for step in program.steps:
        if step.name in creation.FAMILY:
            continue  # of an operand it reads the shape
        results = {Ref(step.number, output) for output in range(len(step.metas))}
        if discrete.intersection(step.operands) or (computed.intersection(step.operands) and not _continuous(step)):
            discrete |= results
        elif computed.intersection(step.operands) or not _exact(step):
            computed |= results
    return {name for name, ref in program.outputs.items() if ref is not None and ref not in discrete}


def _exact(step: Step) -> bool:
    """Return True for a step that rounds nothing when its operands are inputs: it moves, makes, widens or decides."""
    if step.op is None or step.name in movement.FAMILY:
        return True
    if step.name in casts.FAMILY and step.meta.dtype in (step.operand_metas[0].dtype, torch.float32, torch.float64):
        return True  # to float32 from 64 bits: such results end in no cast to 16
    return not any(meta.dtype.is_floating_point for meta in step.metas if meta is not None)


def _continuous(step: Step) -> bool:
    floating = all(meta.dtype.is_floating_point for meta in step.metas if meta is not None)
    moved = step.name in movement.FAMILY or step.name in casts.FAMILY
    known = step.name.split(".")[1].strip("_") in CONTINUOUS and "mode" not in step.name.rpartition(".")[2]
    return floating and (moved or known)
