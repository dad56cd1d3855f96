"""Arguments for the rules that no entry of PyTorch's operator database reaches, or that are quicker called directly.

Each case is one operation on small tensors: random values, and those at which rules take another path (zeros of both
signs, ties, integers, halfway cases, subnormal and large numbers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Tensor = torch.Tensor
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-40, -1e-40, 3e-39, 1e-30, 1e30, -1e30, 2.0**24, 88.0, -104.0,
         1e-4, -1e-4, 1.0 + 2.0**-20, 3.0, -3.0, 0.9999999, 1e-7)  # fmt: skip


def edges(dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the values at which rules take another path."""
    return torch.tensor(EDGES).to(dtype)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _unary(dtype: torch.dtype) -> tuple[Any, ...]:
    return (torch.cat([edges(dtype), drawn(16, dtype=dtype), drawn(16, seed=1, dtype=dtype).abs() + 1]),)


def _binary(dtype: torch.dtype) -> tuple[Any, ...]:
    values = torch.cat([edges(dtype), drawn(12, dtype=dtype)])
    return values, values.roll(7)


UNARY = (
    "prims.abs prims.acos prims.acosh prims.asin prims.asinh prims.atan prims.atanh prims.ceil prims.clone prims.cos "
    "prims.cosh prims.digamma prims.erf prims.erf_inv prims.erfc prims.exp prims.exp2 prims.expm1 prims.floor "
    "prims.isfinite prims.lgamma prims.log prims.log10 prims.log1p prims.log2 prims.neg prims.reciprocal prims.round "
    "prims.rsqrt prims.sign prims.sin prims.sinh prims.sqrt prims.tan prims.tanh prims.trunc prims.view_of "
    "aten.alias aten.contiguous aten.detach aten.detach_copy aten.isfinite aten.isinf aten.lift aten.lift_fresh "
    "aten.signbit aten.square aten._neg_view"
).split()
BINARY = (
    "prims.add prims.atan2 prims.div prims.eq prims.fmax prims.fmin prims.fmod prims.ge prims.gt prims.hypot prims.le "
    "prims.lt prims.maximum prims.minimum prims.mul prims.ne prims.pow prims.remainder prims.sub aten.silu_backward"
).split()

Make = Callable[[torch.dtype], tuple[Any, ...]]
WHOLE = torch.tensor([0, 1, 2, 3, 5, -7])
PLACES = torch.tensor([3, 0, 1, 2, 7, 4])
COINS = torch.tensor([True, False, True])


def _given(*arguments: Any, **options: Any) -> Make:
    """Return these arguments; floating tensors come in the format asked for."""

    def make(dtype: torch.dtype) -> tuple[Any, ...]:
        def cast(value: Any) -> Any:
            if isinstance(value, list):
                return [cast(v) for v in value]
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        return (*(cast(a) for a in arguments), options)

    return make


X, Y, ROW, CUBE = drawn(3, 4), drawn(3, 4, seed=1), drawn(5), drawn(2, 3, 4)
PADDED = {2: drawn(1, 2, 3, 4), 3: drawn(1, 2, 3, 3, 3)}
INDEX = torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2]])
OTHERS: Mapping[str, Make] = {
    "aten.__lshift__.Scalar": _given(WHOLE, 3),
    "aten.__lshift__.Tensor": _given(WHOLE, PLACES),
    "aten.__rshift__.Scalar": _given(WHOLE, 1),
    "aten.__rshift__.Tensor": _given(WHOLE, PLACES),
    "aten._reshape_copy.default": _given(X, [2, 6]),
    "aten.argmax.default": _given(X, 1),
    "aten.argmin.default": _given(X, 0),
    "aten.bitwise_and.Scalar": _given(WHOLE, 3),
    "aten.bitwise_left_shift.Tensor": _given(WHOLE, PLACES),
    "aten.bitwise_left_shift.Tensor_Scalar": _given(WHOLE, 3),
    "aten.bitwise_or.Scalar": _given(WHOLE, 4),
    "aten.bitwise_right_shift.Tensor": _given(WHOLE, PLACES),
    "aten.bitwise_right_shift.Tensor_Scalar": _given(WHOLE, 1),
    "aten.bitwise_xor.Scalar": _given(WHOLE, 5),
    "aten.bitwise_xor.Tensor": _given(WHOLE, WHOLE.flip(0)),
    "aten.bucketize.Scalar": _given(0.25, ROW.sort().values),
    "aten.bucketize.Tensor": _given(X, ROW.sort().values, right=True),
    "aten.chunk.default": _given(X, 2, 1),
    "aten.clamp_max.default": _given(X, 0.3),
    "aten.copysign.Scalar": _given(X, -1.0),
    "aten.div.Scalar_mode": _given(X, 0.3, rounding_mode="floor"),
    "aten.fill.Tensor": _given(X, torch.tensor(0.7)),
    "aten.fmod.Scalar": _given(X, 0.3),
    "aten.ger.default": _given(ROW, drawn(3, seed=1)),
    "aten.index_fill.int_Tensor": _given(X, 0, torch.tensor([0, 2]), torch.tensor(0.7)),
    "aten.linspace.default": _given(0.1, 1.7, 7),
    "aten.logical_xor.default": _given(COINS, COINS.flip(0).roll(1)),
    "aten.masked_fill.Tensor": _given(drawn(3), COINS, torch.tensor(0.7)),
    "aten.median.dim": _given(X, 1),
    "aten.reflection_pad2d.default": _given(PADDED[2], [1, 2, 2, 1]),
    "aten.reflection_pad2d_backward.default": _given(drawn(1, 2, 6, 7), PADDED[2], [1, 2, 2, 1]),
    "aten.reflection_pad3d.default": _given(PADDED[3], [1, 2, 2, 1, 0, 1]),
    "aten.reflection_pad3d_backward.default": _given(drawn(1, 2, 4, 6, 6), PADDED[3], [1, 2, 2, 1, 0, 1]),
    "aten.replication_pad3d.default": _given(PADDED[3], [1, 2, 2, 1, 0, 1]),
    "aten.replication_pad3d_backward.default": _given(drawn(1, 2, 4, 6, 6), PADDED[3], [1, 2, 2, 1, 0, 1]),
    "aten.remainder.Scalar_Tensor": _given(2.5, X),
    "aten.reshape.default": _given(X, [2, 6]),
    "aten.scatter.reduce": _given(X, 0, INDEX, Y, reduce="add"),
    "aten.scatter.value_reduce": _given(X, 0, INDEX, 0.3, reduce="multiply"),
    "aten.searchsorted.Scalar": _given(ROW.sort().values, 0.25),
    "aten.select_copy.int": _given(X, 0, 1),
    "aten.slice_copy.Tensor": _given(X, 1, 1, 3),
    "aten.sort.stable": _given(X, stable=True, dim=1),
    "aten.split_copy.Tensor": _given(X, 2, 1),
    "aten.squeeze_.default": _given(drawn(1, 3, 1)),
    "aten.squeeze_.dim": _given(drawn(1, 3, 1), 0),
    "aten.squeeze_.dims": _given(drawn(1, 3, 1), [0, 2]),
    "aten.squeeze_copy.dim": _given(drawn(1, 3, 1), 2),
    "aten.squeeze_copy.dims": _given(drawn(1, 3, 1), [0, 2]),
    "aten.t_.default": _given(X),
    "aten.transpose_.default": _given(CUBE, 0, 2),
    "aten.tril_indices.default": _given(3, 4),
    "aten.unsafe_chunk.default": _given(X, 2),
    "aten.unsafe_split_with_sizes.default": _given(X, [1, 2]),
    "aten.unsqueeze_.default": _given(X, 1),
    "aten.where.Scalar": _given(COINS, 0.3, 1.7),
    "aten.where.ScalarOther": _given(COINS, drawn(3), 0.3),
    "aten.where.ScalarSelf": _given(COINS, 0.3, drawn(3)),
    "exactref.regrouped.default": _given(X, 2),
    "prims.amax.default": _given(X, [1]),
    "prims.amin.default": _given(X, [0]),
    "prims.bitwise_and.default": _given(WHOLE, WHOLE.flip(0)),
    "prims.bitwise_not.default": _given(WHOLE),
    "prims.bitwise_or.default": _given(WHOLE, WHOLE.flip(0)),
    "prims.bitwise_xor.default": _given(WHOLE, WHOLE.flip(0)),
    "prims.cat.default": _given([X, Y], 0),
    "prims.collapse_view.default": _given(CUBE, 0, 1),
    "prims.convert_element_type.default": _given(X, torch.bfloat16),
    "prims.iota.default": _given(
        5, start=2, step=3, dtype=torch.int64, device=torch.device("cpu"), requires_grad=False
    ),
    "prims.prod.default": _given(X, [1]),
    "prims.reshape.default": _given(X, [2, 6]),
    "prims.rev.default": _given(X, [1]),
    "prims.split_dim.default": _given(X, 1, 2),
    "prims.squeeze.default": _given(drawn(1, 3, 1), [0, 2]),
    "prims.transpose.default": _given(CUBE, [2, 0, 1]),
    "prims.where.default": _given(COINS, drawn(3), drawn(3, seed=1)),
}
CASES: Mapping[str, Make] = {
    **{f"{name}.default": _unary for name in UNARY},
    **{f"{name}.default": _binary for name in BINARY},
    **OTHERS,
}
# Rules of which there is nothing to compare, and why.
WITHOUT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "aten.empty.memory_format", "aten.empty_like.default", "aten.empty_permuted.default",
            "aten.empty_strided.default", "aten.new_empty.default", "aten.new_empty_strided.default",
            "prims.empty_permuted.default", "prims.empty_strided.default",
        ),
        "memory without values",
    ),
    **dict.fromkeys(
        ("aten._unique.default", "aten._unique2.default", "aten.nonzero.default", "exactref.attained"),
        "which values are equal, to zero or to an extremum, is the filter's to say",
    ),
    **dict.fromkeys(
        (
            "fused.normalize", "fused.normalize_backward", "closed.normalize", "closed.normalize_backward",
            "closed.normalize_weight",
        ),
        "only the filter sees them; their bounds are held equal to those of their steps by tests of filter/",
    ),
}  # fmt: skip
