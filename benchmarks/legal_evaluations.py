"""Legal evaluations: sums and products in other orders, with FMA, or rounded only once.

`AnyOrder` evaluates whatever runs within it (forward and autograd's backward alike) in float32 (float64 for float64
programs, complex64 for complex ones) with every sum, mean and matrix product in a permuted, reversed or blocked order,
or in float64 with one rounding at the end: all of them are things that a correct kernel may do. Nothing else is: an
intermediate that overflows is a fault, which `OverflowWatch` notices.
"""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.random_programs import accumulator
from kernels_core.doubles.error_free import two_product, two_sum
from kernels_core.float8 import rounds_beyond
from kernels_core.formats import format_of

Tensor = torch.Tensor


def _without_memory(*values: Any) -> bool:
    """Return True where one is a zero that PyTorch's derivatives keep without memory, which cannot be read."""
    return any(isinstance(v, Tensor) and (v.is_meta or v._is_zerotensor()) for v in values)


class OverflowWatch(TorchDispatchMode):
    """Notices results that are infinite where every operand is finite: overflow of an intermediate is never legal.

    Nor is a gradient that PyTorch forms by dividing by a product that has underflowed (docs/findings.md, 52). A cast to
    an 8-bit format overflows as the program declares, and a gradient that is returned in one saturates as a result
    does; one that PyTorch's derivative of a cast stores in 8 bit on its way must not (docs/dtypes.md).

    Attributes:
        seen: an intermediate overflowed.
        gradient: a gradient went on from one that overflowed in an 8-bit format, or divides what has underflowed: no
            gradient is legal then.
    """

    def __init__(self) -> None:
        """Start with nothing seen."""
        super().__init__()
        self.seen = self.gradient = False
        self._beyond: list[Tensor] = []  # gradients in 8 bit that overflowed, legal while nothing reads them

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and look at its result."""
        result = func(*args, **(kwargs or {}))
        if _in_backward() and isinstance(result, Tensor):
            self.gradient |= any(a is beyond for a in pytree.tree_leaves(args) for beyond in self._beyond)
            self._beyond += [result] * (_is_float8(result) and _overflows(args[0], result.dtype))
        if _without_memory(result, *pytree.tree_leaves(args)):
            return result
        self.gradient |= func.overloadpacket in _DIVIDED_BY and _underflows(func, args, kwargs or {}, result)
        if _inexact(result) and result.itemsize > 1 and not self.seen and bool(result.isinf().any()):
            tensors = [a for a in pytree.tree_leaves(args) if _inexact(a)]
            self.seen = bool(tensors) and all(bool(_widened(t).isfinite().all()) for t in tensors)
        return result


_DIVIDED_BY = frozenset({torch.ops.aten.prod, torch.ops.aten.cumprod})  # whose gradients divide by their results


def _underflows(func: Any, args: Any, kwargs: Any, result: Tensor) -> bool:
    """Return True where a result of this operation is zero or subnormal and should not be zero, or will be so.

    The gradient multiplies it by what arrives before it divides: 2^-12 leaves room for that.
    """
    if not result.is_floating_point() or result.itemsize == 1:
        return False
    exact = func(args[0].double(), *args[1:], **{**kwargs, "dtype": torch.float64})
    return bool(((exact != 0) & (result.abs() < torch.finfo(result.dtype).tiny * 2.0**12)).any())


def _in_backward() -> bool:
    """Return True where autograd's engine is running."""
    return bool(torch._C._current_graph_task_id() >= 0)


def _is_float8(value: Tensor) -> bool:
    return value.is_floating_point() and value.itemsize == 1


def _overflows(x: Any, dtype: torch.dtype) -> bool:
    """Return True where a wider tensor has a finite value that an 8-bit format does not reach."""
    if not _inexact(x) or _without_memory(x):
        return False
    wide = _widened(x)
    return bool((rounds_beyond(wide, format_of(dtype)) & wide.isfinite()).any())


def _inexact(value: Any) -> bool:
    """Return True for floating and complex tensors."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _widened(x: Tensor) -> Tensor:
    """Return a tensor in a format in which PyTorch computes and that holds its values."""
    return x.float() if x.itemsize == 1 else x


def fused_multiply_add(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return a b + c, rounded once from at least twice the precision (complex: each part of it)."""
    if a.dtype is torch.float64:
        product, lost = two_product(a, b)
        total, rest = two_sum(product, c)
        return total + (lost + rest)
    wide = torch.complex128 if a.is_complex() else torch.float64
    return (c.to(wide) + a.to(wide) * b.to(wide)).to(c.dtype)


class AnyOrder(TorchDispatchMode):
    """Evaluates sums, means and matrix products in an order drawn from a generator."""

    def __init__(self, seed: int) -> None:
        """Draw from this seed."""
        super().__init__()
        self.draw = random.Random(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the operations that have another legal order."""
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if not args or not _inexact(args[0]) or _without_memory(*args):
            return func(*args, **kwargs)
        if name in ("mm", "bmm"):
            return self.product(args[0], args[1])
        if name in ("sum", "mean") and args[0].numel():
            return self.total(func, name, args, kwargs)
        if name in ("add", "mul", "exp", "tanh", "sigmoid", "div") and self.draw.random() < 0.2:
            return self.once(func, args, kwargs)
        return func(*args, **kwargs)

    def once(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """Evaluate in float64 and round once."""
        result_dtype = torch.result_type(args[0], args[1]) if len(args) > 1 else args[0].dtype
        wide = [a.to(torch.complex128 if a.is_complex() else torch.float64) if _inexact(a) else a for a in args]
        return func(*wide, **kwargs).to(result_dtype)

    def order(self, n: int) -> list[list[int]]:
        """Return the indices 0..n-1 in blocks, in a permuted, reversed or natural order."""
        indices = list(range(n))
        how = self.draw.choice(["permuted", "reversed", "natural"])
        if how == "permuted":
            self.draw.shuffle(indices)
        elif how == "reversed":
            indices.reverse()
        block = self.draw.choice([n, 4, 1 + int(math.sqrt(n))])
        return [indices[i : i + block] for i in range(0, n, block)]

    def total(self, func: Any, name: str, args: Any, kwargs: Any) -> Tensor:
        """Sum or mean in the accumulator's format, in an order of its own."""
        x = args[0] if kwargs.get("dtype") is None else args[0].to(kwargs["dtype"])
        dims = args[1] if len(args) > 1 and args[1] is not None else kwargs.get("dim")
        keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        dims = [d % x.dim() for d in dims] if dims else list(range(x.dim()))
        if not x.dim():
            return func(*args, **kwargs)
        kept = [d for d in range(x.dim()) if d not in dims]
        shape = [x.shape[d] if d in kept else 1 for d in range(x.dim())]
        columns = accumulator(x).permute(*kept, *dims).reshape(*[x.shape[d] for d in kept], -1)
        value = self.add_up([columns[..., i] for i in range(columns.shape[-1])])
        if name == "mean":
            value = value / columns.shape[-1] if self.draw.random() < 0.5 else value * (1 / columns.shape[-1])
        value = value.reshape(shape) if keepdim else value.reshape([x.shape[d] for d in kept])
        return value.to(x.dtype)

    def add_up(self, terms: list[Tensor]) -> Tensor:
        """Add terms, block by block."""
        parts = []
        for block in self.order(len(terms)):
            part = terms[block[0]]
            for i in block[1:]:
                part = part + terms[i]
            parts.append(part)
        value = parts[0]
        for part in parts[1:]:
            value = value + part
        return value

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Matrix product in the accumulator's format, in an order of its own, with or without FMA."""
        x, y = accumulator(a).resolve_conj(), accumulator(b).resolve_conj()
        if x.is_complex() and self.draw.random() < 0.5:
            return self.apart(x, y)
        fused, value = self.draw.random() < 0.5, torch.zeros(*a.shape[:-1], b.shape[-1], dtype=x.dtype)
        for block in self.order(a.shape[-1]):
            part = torch.zeros_like(value)
            for k in block:
                left, right = x[..., :, k : k + 1], y[..., k : k + 1, :]
                part = fused_multiply_add(left, right, part) if fused else part + left * right
            value = value + part
        return value.to(a.dtype)

    def apart(self, x: Tensor, y: Tensor) -> Tensor:
        """Matrix product of complex tensors from four real ones, each in an order of its own."""
        real = self.product(x.real, y.real) - self.product(x.imag, y.imag)
        return torch.complex(real, self.product(x.real, y.imag) + self.product(x.imag, y.real))
