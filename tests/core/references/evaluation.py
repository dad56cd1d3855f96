"""A reference evaluated by PyTorch."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.catalogue_examples import Draw
from kernels_core.reference import Reference

Tensor = torch.Tensor


def evaluated(
    function: Reference | Callable[..., Any], args: Mapping[str, Any]
) -> tuple[list[Tensor], Any, list[Tensor]]:
    """Return outputs, an upstream gradient as `Reference.backward` takes it, and the gradients.

    These are autograd's; of a surrogate, what it declares.
    """
    leaves = {
        name: value.clone().requires_grad_() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in args.items()
    }
    wrt = [value for value in leaves.values() if isinstance(value, Tensor) and value.requires_grad]
    result = function.function(**leaves) if isinstance(function, Reference) else function(**leaves)
    outputs = list(result) if isinstance(result, tuple) else [result]
    grads = [Draw(out.dtype, 7 + i).normal(*out.shape) for i, out in enumerate(outputs)]
    if isinstance(function, Reference) and function.surrogate:
        gradients = function.declared(tuple(args.values()), outputs, grads)  # type: ignore[misc]
    else:
        gradients = torch.autograd.grad(outputs, wrt, grads, allow_unused=True)
        gradients = [torch.zeros_like(t) if g is None else g for t, g in zip(wrt, gradients, strict=True)]
    return [out.detach() for out in outputs], tuple(grads) if len(grads) > 1 else grads[0], list(gradients)
