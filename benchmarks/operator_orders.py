"""What kernel and reference are compared on: gradients, tangents or gradients of gradients, ours and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from kernels_core.kernel.call import draw_upstream, run_kernel
from kernels_core.reference import Check, Result
from kernels_core.tracing.arguments import call_bound, output_names, with_tensors
from kernels_core.tracing.derivatives import tangent_name

Compared = tuple[dict[str, Result], dict[str, torch.Tensor | None]]


class NotApplicableError(Exception):
    """PyTorch itself cannot differentiate this in the order asked for."""


def first_order(function: Any, arguments: Any, check: Check) -> Compared:
    """Return outputs and gradients, ours and PyTorch's."""
    upstream = draw_upstream(check, 0)
    outputs, gradients = run_kernel(function, arguments, arguments, check, upstream)
    return check.both(upstream), {**outputs, **(gradients or {})}


def forward_mode(function: Any, arguments: Any, check: Check) -> Compared:
    """Return the tangents of the outputs, ours and those of PyTorch's forward mode."""
    tangents = _vectors(check, check.wrt)
    try:
        with forward_ad.dual_level():
            duals = {n: forward_ad.make_dual(check.tensors[n], t) for n, t in tangents.items()}
            names, outputs = output_names(call_bound(function, with_tensors(arguments, {**check.tensors, **duals})))
            found = {tangent_name(n): forward_ad.unpack_dual(o).tangent for n, o in zip(names, outputs, strict=True)}
    except Exception as error:
        raise NotApplicableError(str(error)) from error
    if not tangents or not check.cotangents:
        raise NotApplicableError("nothing to differentiate")
    return check.tangents(tangents), found


def second_order(function: Any, arguments: Any, check: Check) -> Compared:
    """Return the gradients of the gradients, ours and those of PyTorch's double backward."""
    upstream = draw_upstream(check, 0)
    leaves = {n: t.detach().clone().requires_grad_(n in check.wrt) for n, t in check.tensors.items()}
    wanted = [leaves[n] for n in check.wrt]
    grads = [g.clone().requires_grad_() for g in upstream]
    try:
        _, outputs = output_names(call_bound(function, with_tensors(arguments, leaves)))
        pairs = [(o, g) for o, g in zip((o for o in outputs if o.is_floating_point()), grads, strict=True)
                 if o.requires_grad]  # fmt: skip
        first = _grad([o for o, _ in pairs], wanted, [g for _, g in pairs], create_graph=True)
        used = {f"grad_{n}": g for n, g in zip(check.wrt, first, strict=True) if g is not None and g.requires_grad}
        vectors = _vectors(check, [n.removeprefix("grad_") for n in used], "grad_")
        second = _grad(list(used.values()), [*wanted, *grads], list(vectors.values()))
    except Exception as error:
        raise NotApplicableError(str(error)) from error
    if not vectors:
        raise NotApplicableError("the gradient depends on nothing")
    results = check.second_order(upstream, vectors)
    return results, dict(zip(results, second, strict=True))


def _grad(outputs: Any, inputs: Any, grads: Any, **options: Any) -> Any:
    return torch.autograd.grad(outputs, inputs, grads, allow_unused=True, **options)


def _vectors(check: Check, names: Sequence[str], prefix: str = "") -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = {n: check.tensors[n] for n in names}
    return {prefix + n: torch.randn(t.shape, generator=generator).to(t.dtype) for n, t in shapes.items()}


ORDERS: Mapping[str, Callable[[Any, Any, Check], Compared]] = {
    "first": first_order,
    "jvp": forward_mode,
    "double": second_order,
}
