"""Kernels in every way that people write them, each with gradients that are `factor` times the true ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

Tensor = torch.Tensor
Kernel = Callable[..., Any]


def linear(factor: float) -> type[torch.autograd.Function]:
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            ctx.save_for_backward(x, weight)
            ctx.has_bias = bias is not None
            return x @ weight.t() if bias is None else x @ weight.t() + bias

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            x, weight = ctx.saved_tensors
            return grad @ weight * factor, grad.t() @ x, grad.sum(0) if ctx.has_bias else None

    return Linear


def setup_with_default(factor: float) -> Kernel:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor, scale: float = 2.0) -> Tensor:
            return x * x * scale

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            x, ctx.scale = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return 2 * ctx.saved_tensors[0] * ctx.scale * grad * factor, None

    return Scaled


def in_place(factor: float) -> Kernel:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * grad * factor

    return Doubled


def not_differentiable(factor: float) -> Kernel:
    class Largest(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            values, indices = x.max(-1)
            spread = x.amax(-1) - x.amin(-1)
            ctx.mark_non_differentiable(indices, spread)
            ctx.save_for_backward(indices, x)
            return values, indices, spread

        @staticmethod
        def backward(ctx: Any, grad: Tensor, _: Tensor, __: Tensor) -> Tensor:
            indices, x = ctx.saved_tensors
            return torch.zeros_like(x).scatter_(-1, indices[:, None], grad[:, None] * factor)

    return Largest


def once(factor: float) -> Kernel:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * ctx.saved_tensors[0] * grad * factor

    return Square


def not_materialized(factor: float) -> Kernel:
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x * x, x * 3

        @staticmethod
        def backward(ctx: Any, square: Tensor | None, triple: Tensor | None) -> Tensor | None:
            parts = [2 * ctx.saved_tensors[0] * square] if square is not None else []
            parts += [3 * triple * factor] if triple is not None else []
            return functools.reduce(torch.add, parts) if parts else None

    return Two


def varying_number(factor: float) -> Kernel:
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, scale: float, *xs: Tensor) -> Tensor:
            ctx.scale = scale
            ctx.save_for_backward(*xs)
            return functools.reduce(torch.mul, xs) * scale

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            xs = ctx.saved_tensors
            others = [functools.reduce(torch.mul, [x for j, x in enumerate(xs) if j != i]) for i in range(len(xs))]
            return None, *(grad * ctx.scale * other * factor for other in others)

    return Product


def of_a_list(factor: float) -> Kernel:
    apply = linear(factor).apply

    def summed(xs: Sequence[Tensor], weight: Tensor, scale: float = 2.0) -> dict[str, Any]:
        ys = [apply(x, weight) for x in xs]
        return {"sum": sum(ys) * scale, "parts": ys, "count": len(ys), "nothing": None}

    return summed


def of_a_dict(factor: float) -> Kernel:
    apply = linear(factor).apply

    def layer(x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        return apply(x, parameters["weight"], parameters["bias"])  # type: ignore[no-any-return]

    return layer


def nested(factor: float) -> Kernel:
    apply = linear(factor).apply

    def cell(x: Tensor, state: tuple[Tensor, tuple[Tensor, Tensor]]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden, (weight, extra) = state
        return apply(hidden, weight) * x, (extra * x, extra + x)

    return cell


def keyword_only(factor: float) -> Kernel:
    apply = linear(factor).apply

    def layer(x: Tensor, *, weight: Tensor, scale: float = 2.0) -> Tensor:
        return apply(x, weight) * scale  # type: ignore[no-any-return]

    return layer


def partial(factor: float) -> Kernel:
    return functools.partial(keyword_only(factor), scale=3.0)


def bound_apply(factor: float) -> Kernel:
    return linear(factor).apply  # type: ignore[no-any-return]


def method(factor: float) -> Kernel:
    class Layer:
        apply = staticmethod(linear(factor).apply)

        def run(self, x: Tensor, weight: Tensor) -> Tensor:
            return self.apply(x, weight)  # type: ignore[no-any-return]

    return Layer().run


def lambda_(factor: float) -> Kernel:
    apply = linear(factor).apply
    return lambda x, weight: apply(x, weight)


def compiled(backend: str) -> Callable[[float], Kernel]:
    def make(factor: float) -> Kernel:
        return torch.compile(lambda_(factor), backend=backend)

    return make


def operator(factor: float) -> Kernel:
    """Return a custom operator; its name holds the factor, since PyTorch keeps operators for the whole process."""
    name = f"exactref_tests::square_{int(factor * 100)}"
    from torch._library.custom_ops import OPDEFS

    if name not in OPDEFS:

        @torch.library.custom_op(name, mutates_args=())
        def square(x: Tensor, scale: float = 1.0) -> Tensor:
            return x * x * scale

        square.register_fake(lambda x, scale=1.0: torch.empty_like(x))
        square.register_autograd(
            lambda ctx, grad: (2 * ctx.saved_tensors[0] * ctx.saved_tensors[1] * grad * factor, None),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0], torch.tensor(inputs[1])),
        )
    return OPDEFS[name]


def operator_overload(factor: float) -> Kernel:
    return operator(factor)._opoverload  # type: ignore[attr-defined, no-any-return]


def operator_inside(factor: float) -> Kernel:
    found = operator(factor)
    return lambda x: found(x) + 1
