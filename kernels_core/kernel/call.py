"""The kernel under test: how it is called, and what it means that it raised."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernels_core.errors import ExactRefError, described
from kernels_core.kernel.callee import call, copied, inside_a_network
from kernels_core.kernel.global_state import restored
from kernels_core.reference import Check
from kernels_core.report import Raised
from kernels_core.tracing import trace as tracing
from kernels_core.tracing.complex_parts import draw

Tensor = torch.Tensor


def draw_upstream(check: Check, seed: int) -> list[Tensor]:
    """Draw upstream gradients per element in logical order, independent per output."""
    generator = torch.Generator().manual_seed(seed + 0x5EED)
    return [draw(meta, meta.shape, generator).to(check.device) for meta in check.cotangents.values()]


class KernelRaisedError(Exception):
    """The kernel raised; `raised` is what the report says of it."""

    def __init__(self, raised: Raised) -> None:
        """Keep what the report shows."""
        super().__init__(raised.message)
        self.raised = raised


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Turn whatever the kernel raises within this into a KernelRaisedError of the phase "forward" or "backward"."""
    try:
        yield
    except (ExactRefError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a kernel that calls sys.exit has not returned its result either
        raise KernelRaisedError(Raised(name, described(error), user_frames(error))) from error


_NOT_THE_USERS = ("/torch/", "kernels_core", "exactref_cli")


def user_frames(error: BaseException) -> str:
    """Return the traceback of an exception without the frames of PyTorch and of this program."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not any(p in f.filename for p in _NOT_THE_USERS)]
    return "".join(traceback.format_list(frames)).rstrip()


def run_kernel(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    arguments: Mapping[str, Any],
    check: Check,
    upstream: Sequence[Tensor],
) -> tuple[dict[str, Tensor], dict[str, Tensor | None] | None]:
    """Run forward and backward on fresh copies of the inputs; return outputs and gradients by name.

    The gradients are None where the outputs have other shapes than the reference's: there is no upstream for them.
    """
    leaves = fresh_leaves(check)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        outputs = run_forward(function, inputs, arguments, leaves)
        gradients = None
        if shapes_agree(outputs, check):
            gradients = run_backward(outputs, leaves, check, [g.clone() for g in upstream])
    return {n: t.detach() for n, t in outputs.items()}, gradients


def rerun(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    check: Check,
    upstream: Sequence[Tensor],
    arguments: Mapping[str, Any],
    other_upstream: Sequence[Tensor] | None = None,
) -> dict[str, Tensor | None]:
    """Run the kernel again, on these arguments, for a diagnosis; return outputs and gradients by name."""
    upstream = upstream if other_upstream is None else other_upstream
    other = Check(check.reference, arguments, profile=check.profile, wrt=check.wrt)
    outputs, gradients = run_kernel(function, inputs, arguments, other, upstream)
    return {**outputs, **(gradients or {})}


def fresh_leaves(check: Check) -> dict[str, Tensor]:
    """Return copies of the tensor inputs by name; those to be differentiated require a gradient."""
    return {n: copied(t).requires_grad_(n in check.wrt) for n, t in check.tensors.items()}


def run_forward(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    arguments: Mapping[str, Any],
    leaves: Mapping[str, Tensor],
    *,
    as_given: bool = False,
) -> dict[str, Tensor]:
    """Return the outputs by name.

    Args:
        function: the kernel.
        inputs: as the caller named them, which says how the kernel is called.
        arguments: the same under the reference's names.
        leaves: the tensors that stand in for those of the arguments.
        as_given: the kernel is given these themselves, not what follows them in a network.

    Raises:
        KernelRaisedError: the kernel raised.
    """
    with phase("forward"), restored():
        within = leaves if as_given else {name: inside_a_network(leaf) for name, leaf in leaves.items()}
        names, tensors = tracing.output_names(call(function, inputs, tracing.with_tensors(arguments, within)))
    return dict(zip(names, tensors, strict=True))


def shapes_agree(outputs: Mapping[str, Tensor], check: Check) -> bool:
    """Return True where every floating output has the reference's shape, so that there is an upstream for it."""
    return all(outputs[n].shape == m.shape for n, m in check.cotangents.items() if n in outputs)


def run_backward(
    outputs: Mapping[str, Tensor],
    leaves: Mapping[str, Tensor],
    check: Check,
    upstream: Sequence[Tensor | None],
    *,
    retain_graph: bool = False,
) -> dict[str, Tensor | None]:
    """Return the gradients by name ("grad_A"); None where the kernel gives none.

    Args:
        outputs: of `run_forward`.
        leaves: that it was given.
        check: for what is differentiated.
        upstream: one per floating output, passed on as it is; None leaves an output out.
        retain_graph: so that the backward can run again.

    Raises:
        KernelRaisedError: the kernel raised.
    """
    # what a kernel wrote to in place, and that needed no gradient before, is an output: it has a graph now
    wanted = [name for name in check.wrt if leaves[name].requires_grad and leaves[name].is_leaf]
    found: dict[str, Tensor | None] = {f"grad_{name}": None for name in wanted}
    returned = (outputs[name] for name in check.cotangents if name in outputs)
    pairs = [(t, g) for t, g in zip(returned, upstream, strict=False) if t.requires_grad and g is not None]
    if pairs and wanted:
        with phase("backward"), restored():
            gradients = torch.autograd.grad(
                [t for t, _ in pairs], [leaves[name] for name in wanted], [g for _, g in pairs],
                retain_graph=retain_graph, allow_unused=True,
            )  # fmt: skip
        found.update(zip(found, gradients, strict=True))
    return found
