"""The reference as PyTorch itself runs it, in the kernel's dtypes: what a kernel cannot be held to, it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kernels_core.coverage import Element
from kernels_core.kernel.call import KernelRaisedError, fresh_leaves, phase, run_backward, run_kernel
from kernels_core.reference import Check, Result
from kernels_core.tracing.complex_parts import apart, returned_apart, together
from kernels_core.tracing.derivatives import writes_to_what_it_needs
from kernels_core.tracing.standin import functions_as_forwards

Tensor = torch.Tensor


def run_reference(check: Check, upstream: Sequence[Tensor]) -> Mapping[str, Tensor | None]:
    """Return the outputs and gradients of the reference by name.

    A forward that writes to what its derivative needs, as that of a Function may, is run in the form of its program.

    Raises:
        KernelRaisedError: PyTorch raises.
    """
    function = check.reference.function
    try:
        with functions_as_forwards():
            outputs, gradients = run_kernel(function, check.arguments, check.arguments, check, upstream)
    except KernelRaisedError as error:
        if not writes_to_what_it_needs(error):
            raise
        outputs, gradients = _run_program(check, upstream)
    return {**outputs, **(gradients or {})}


def outside(check: Check, upstream: Sequence[Tensor], results: Mapping[str, Result]) -> str:
    """Return the name of a result whose interval PyTorch leaves, running the reference itself; "" where it leaves none.

    Raises:
        KernelRaisedError: PyTorch raises.
    """
    surrogate = check.reference.surrogate  # its gradient is not the derivative, on purpose
    judged = {name: result for name, result in results.items() if not (surrogate and name.startswith("grad_"))}
    found = returned_apart(run_reference(check, upstream), results) if judged else {}
    for name, result in judged.items():
        if name not in found:
            continue
        actual = found[name]
        value = torch.zeros(result.meta.shape, dtype=result.meta.dtype) if actual is None else actual
        if bool((result.verdict(value) == Element.VIOLATED).any()):
            return name
    return ""


def _run_program(check: Check, upstream: Sequence[Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor | None]]:
    leaves = fresh_leaves(check)
    with torch.enable_grad(), phase("forward"):
        outputs = together(check.whole_outputs, list(check.forward.run(apart(leaves)).values()))
    gradients = run_backward(outputs, leaves, check, [g.clone() for g in upstream])
    return {name: t.detach() for name, t in outputs.items()}, gradients
