"""Complex numbers inside a reference, as pairs of real ones (those at its edges: complex_parts.py).

A traced graph with complex tensors in it is traced once more with each of them carried by PyTorch's ComplexTensor: its
operations are real ones on its two parts: these have rules. What comes in and goes out is real. A product is
re re - im im and re im + im re, each operation granted its rounding; Fourier transforms are one operation of their own
(rules/transforms.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.complex_tensor._core import ComplexTensor
from torch.utils._python_dispatch import _disable_current_modes

from kernels_core.errors import UnsupportedOperation
from kernels_core.tracing import complex_functions as functions
from kernels_core.tracing.complex_functions import REAL, parts, product

Tensor = torch.Tensor
aten = torch.ops.aten
# PyTorch would decompose these into writing to the parts of a complex tensor.
WHOLE = frozenset({aten.complex.default, aten.polar.default})


@torch.library.custom_op("exactref::dft", mutates_args=())
def dft(re: Tensor, im: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> tuple[Tensor, Tensor]:
    """The discrete Fourier transform along `dim`; normalization by 1, 1/sqrt(n), 1/n for 0, 1, 2 as in ATen."""
    value = aten._fft_c2c(torch.complex(re, im), list(dim), normalization, forward)
    return value.real.clone(), value.imag.clone()


@dft.register_fake
def _(re: Tensor, im: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(re), torch.empty_like(im)


def has_complex(graph: torch.fx.GraphModule) -> bool:
    """Return True where a node of the graph has a complex value."""
    return any(has_complex_value(node) for node in graph.graph.nodes)


def has_complex_value(node: torch.fx.Node) -> bool:
    """Return True where the result of a node, or one of them, is complex."""
    return _is_complex(node.meta.get("val", node.meta.get("tensor_meta")))


def _is_complex(value: Any) -> bool:
    leaves = torch.utils._pytree.tree_leaves(value)
    return any(getattr(leaf, "dtype", None) in REAL for leaf in leaves)


def _transformed(value: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    return ComplexTensor(*dft(*parts(value), list(dim), normalization, forward)) if dim else value


def _r2c(x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    value = _transformed(x, dim, normalization, True)
    return value.narrow(dim[-1], 0, x.shape[dim[-1]] // 2 + 1) if onesided else value


def _c2r(value: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    """The other dimensions first; then the last one, completed by symmetry, whose ends count by their real parts."""
    last, n = dim[-1], int(last_dim_size)
    re, im = parts(_transformed(value, dim[:-1], normalization, False))
    half = n // 2 + 1
    places = torch.arange(half, device=re.device)
    shape = [1] * re.dim()
    shape[last] = half
    ends = ((places == 0) | (2 * places == n)).reshape(shape)
    re, im = re.narrow(last, 0, half), torch.where(ends, 0.0, im.narrow(last, 0, half))
    mirrored = [part.narrow(last, 1, n - half).flip(last) for part in (re, im)]
    re, im = torch.cat((re, mirrored[0]), last), torch.cat((im, -mirrored[1]), last)
    return dft(re, im, [last], normalization, False)[0]


def _matrix_product(a: Any, b: Any) -> Any:
    """Each part is one sum of 2 K products, in any order: kernels take real and imaginary terms in turn, or apart."""
    (p, q), (r, s) = parts(a), parts(b)
    rows, columns = (-1, -2) if b.dim() > 1 else (-1, -1)
    real = torch.cat((p, -q), rows) @ torch.cat((r, s), columns)
    return ComplexTensor(real, torch.cat((p, q), rows) @ torch.cat((s, r), columns))


def _conjugate(value: Any) -> Any:
    if isinstance(value, (int, float, complex)):
        return value.conjugate()
    re, im = parts(value)
    return ComplexTensor(re, -im)


def _scaled(value: Any, factor: Any) -> Any:
    return value if factor == 1 else product(value, factor)


def _product_added(value: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled(value, beta) + _scaled(_matrix_product(a, b), alpha)


def _sigmoid_backward(grad: Any, value: Any) -> Any:
    return product(grad, _conjugate(product(value, 1 - value)))


def _between(start: Any, end: Any, weight: Any) -> Any:
    return start + product(end - start, weight)


def _by_parts(operation: Callable[..., Tensor]) -> Callable[..., Any]:
    """Return an operation that moves or adds elements, on both parts."""

    def part(number: int, given: Any) -> Tensor:
        args, kwargs = torch.utils._pytree.tree_map_only(ComplexTensor, lambda z: parts(z)[number], given)
        return operation(*args, **kwargs)

    def apply(*args: Any, **kwargs: Any) -> Any:
        return ComplexTensor(part(0, (args, kwargs)), part(1, (args, kwargs)))

    return apply


def _scalar(value: complex, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    real = REAL[dtype or torch.complex64]
    return ComplexTensor(*(torch.scalar_tensor(part, dtype=real) for part in (value.real, value.imag)))


def _filled(size: Sequence[int], value: complex, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    real = REAL[dtype or torch.complex64]
    return ComplexTensor(*(torch.full(size, part, dtype=real) for part in (value.real, value.imag)))


def _complex(re: Tensor, im: Tensor) -> Any:
    return ComplexTensor(*torch.broadcast_tensors(re, im))


def _from_pairs(pairs: Tensor) -> Any:
    return ComplexTensor(pairs[..., 0], pairs[..., 1])


def _to_pairs(value: Any) -> Tensor:
    return torch.stack(parts(value), -1)


def _to_copy(value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    re, im = parts(value)
    if dtype is None or dtype in REAL:
        wanted = REAL[dtype] if dtype else re.dtype
        return ComplexTensor(re.to(wanted), im.to(wanted))
    return re.to(dtype)


def _made(factory: Callable[..., Tensor]) -> Callable[..., Any]:
    def make(*args: Any, dtype: torch.dtype, **options: Any) -> Any:
        value = factory(*args, dtype=REAL[dtype], **options)
        return ComplexTensor(value, torch.zeros_like(value))

    return make


READS_MEMORY = (aten.as_strided.default, aten.as_strided_scatter.default)
# Operations that move elements or add them up, which ComplexTensor does not know.
_MOVEMENTS = (
    *(aten.roll.default, aten.tril.default, aten.triu.default, aten.unfold.default, aten.unfold_backward.default),
    *(aten.scatter_add.default, aten.index_put.default, aten.masked_select.default, aten.take.default),
    *(aten.diagonal_copy.default, aten.new_empty_strided.default),
    *READS_MEMORY,
    *(aten.reflection_pad1d.default, aten.replication_pad1d.default, aten.diag_embed.default, aten.trace.default),
)
_TABLE: Mapping[Any, Callable[..., Any]] = {
    aten._fft_r2c.default: _r2c,
    aten._fft_c2c.default: _transformed,
    aten._fft_c2r.default: _c2r,
    aten.complex.default: _complex,
    aten.polar.default: lambda size, angle: ComplexTensor(size * torch.cos(angle), size * torch.sin(angle)),
    aten.add.Tensor: functions.plus,
    aten.add.Scalar: functions.plus,
    aten.sub.Tensor: functions.minus,
    aten.sub.Scalar: functions.minus,
    aten.rsub.Scalar: lambda a, b, alpha=1: functions.minus(b, a if alpha == 1 else product(a, alpha)),
    aten.mul.Scalar: product,
    aten.mul.Tensor: product,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.default: aten.squeeze.default,
    aten.unsqueeze_.default: aten.unsqueeze.default,
    aten.transpose_.default: aten.transpose.int,
    aten.view_as_complex.default: _from_pairs,
    aten.view_as_real.default: _to_pairs,
    aten._to_copy.default: _to_copy,
    aten.zeros.default: _made(torch.zeros),
    aten.ones.default: _made(torch.ones),
    aten.full.default: _filled,
    aten.scalar_tensor.default: _scalar,
    aten.mm.default: _matrix_product,
    aten.bmm.default: _matrix_product,
    aten.mv.default: _matrix_product,
    aten.dot.default: _matrix_product,
    aten.vdot.default: lambda a, b: _matrix_product(_conjugate(a), b),
    aten.addmm.default: _product_added,
    aten.addmv.default: _product_added,
    aten.baddbmm.default: _product_added,
    aten.div.Tensor: functions.quotient,
    aten.div.Scalar: functions.quotient,
    aten.reciprocal.default: functions.reciprocal,
    aten.mean.default: functions.mean,
    aten.mean.dim: functions.mean,
    aten.std.correction: lambda value, *args, **options: torch.sqrt(aten.var.correction(value, *args, **options)),
    aten.pow.Tensor_Scalar: functions.power,
    aten.pow.Scalar: functions.power_of,
    aten.exp2.default: lambda value: functions.power_of(2, value),
    aten.log2.default: lambda value: product(torch.log(value), 1 / math.log(2)),
    aten.log10.default: lambda value: product(torch.log(value), 1 / math.log(10)),
    aten.expm1.default: functions.expm1,
    aten.log1p.default: functions.log1p,
    aten.square.default: lambda value: product(value, value),
    aten.sigmoid.default: functions.sigmoid,
    aten.sigmoid_backward.default: _sigmoid_backward,
    aten.atanh.default: functions.atanh,
    aten.atan.default: functions.atan,
    aten.asinh.default: functions.asinh,
    aten.acosh.default: functions.acosh,
    aten._conj.default: _conjugate,
    aten.lerp.Scalar: _between,
    aten.lerp.Tensor: _between,
    **{op: _by_parts(op) for op in _MOVEMENTS},
    aten.resolve_conj.default: lambda value: value,
    aten._has_same_storage_numel.default: lambda value, other: True,  # forward mode asks; nothing reads the answer
    aten.is_same_size.default: lambda value, other: value.shape == other.shape,
    aten.real.default: lambda value: parts(value)[0],
    aten.imag.default: lambda value: parts(value)[1],
}


def as_parts(value: Any) -> Any:
    """Return a constant tensor as it is, a complex one as a ComplexTensor of two constants."""
    if not isinstance(value, Tensor) or value.dtype not in REAL:
        return value
    with _disable_current_modes():  # taking them apart is no part of the graph
        value = value.resolve_conj().resolve_neg()
        real, imag = value.real.clone(), value.imag.clone()
    return ComplexTensor(real, imag)


def real_call(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], complex_result: bool) -> Any:
    """Return the result of one node of the graph, complex values as ComplexTensors.

    Raises:
        UnsupportedOperation: a complex operation without a form in real ones.
    """
    # what is written to may be a view of a complex tensor, whose parts would not see it
    if target not in _TABLE and isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
        raise UnsupportedOperation(str(target), "", "a complex tensor cannot be written to here")
    given = any(isinstance(leaf, ComplexTensor) for leaf in torch.utils._pytree.tree_leaves((args, kwargs)))
    if not given and not complex_result:
        return target(*args, **kwargs)
    try:
        result = _TABLE.get(target, target)(*args, **kwargs)
    except (TypeError, NotImplementedError) as error:
        raise UnsupportedOperation(str(target), "", "it has no form in real numbers here") from error
    if any(
        _is_complex(leaf) and not isinstance(leaf, ComplexTensor) for leaf in torch.utils._pytree.tree_leaves(result)
    ):
        raise UnsupportedOperation(str(target), "", "it has no form in real numbers here")
    return result
