"""Call a kernel on candidates for its inputs, on fake tensors that have shapes but no elements, or on real ones."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from exactref_cli.inputs import Input, PlainInput, draw, each
from kernels_core.errors import described
from kernels_core.kernel.callee import call
from kernels_core.kernel.modules import ModuleKernel, as_kernel
from kernels_core.tracing.complex_parts import differentiable
from kernels_core.tracing.remembered import forgotten
from kernels_core.tracing.standin import refuses_leaves, uncompiled


class Trial:
    """Calls the kernel on candidates; remembers why the first one failed."""

    def __init__(self, kernel: Callable[..., Any], device: str, dtype: torch.dtype) -> None:
        """Try what a compiled kernel was made of: nothing is compiled for shapes that are only tried."""
        found = as_kernel(kernel)
        module = found if isinstance(found, ModuleKernel) else None
        self.kernel = module.plain_function() if module is not None else uncompiled(kernel) or kernel
        self.device, self.weights = device, {} if module is None else module.values(dtype, device)
        self.first_error = ""
        self.last: BaseException | None = None

    def accepts(self, inputs: Sequence[Input], level: str, fake: bool) -> bool:
        """Return True where the kernel runs on these inputs.

        Args:
            inputs: the candidate.
            level: "forward", or "backward" where it has to run too, or "strict" where every floating input also has to
                get a gradient.
            fake: on tensors without elements.
        """
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        mode = FakeTensorMode(allow_non_fake_inputs=True) if fake else contextlib.nullcontext()
        try:
            with (
                forgotten(self.kernel) if fake else contextlib.nullcontext(),
                _quiet(),
                torch.random.fork_rng(devices=devices),
                mode,
                torch.enable_grad(),
            ):
                return self._runs(inputs, level, fake)
        except (Exception, SystemExit) as error:  # whatever it is, the kernel does not take these inputs
            self.last = error
            self.first_error = self.first_error or described(error).splitlines()[0]
            return False

    def _runs(self, inputs: Sequence[Input], level: str, fake: bool) -> bool:
        leaves, result = self._forward(inputs, fake)
        outputs = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
        if level == "forward":
            return True
        if not outputs or not leaves:
            return False  # without a gradient there is nothing of a backward to accept
        found = torch.autograd.grad(outputs, leaves, [torch.ones_like(t) for t in outputs], allow_unused=True)
        return level == "backward" or all(g is not None for g in found)

    def _forward(self, inputs: Sequence[Input], fake: bool) -> tuple[list[torch.Tensor], Any]:
        values, leaves = self._leaves(inputs, fake)
        try:
            return leaves, call(self.kernel, values, values)
        except RuntimeError as error:
            if not refuses_leaves(error):
                raise
        values, leaves = self._leaves(inputs, fake)
        copies = pytree.tree_map_only(torch.Tensor, torch.clone, values)
        return leaves, call(self.kernel, copies, copies)

    def _leaves(self, inputs: Sequence[Input], fake: bool) -> tuple[dict[str, Any], list[torch.Tensor]]:
        values = _empty(inputs, self.device) if fake else draw(inputs, 0, self.device).values
        weights = {n: torch.zeros_like(t) if fake else t for n, t in self.weights.items()}
        tensors = [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor) and differentiable(t.dtype)]
        return {**values, **weights}, [t.requires_grad_() for t in tensors]


def _empty(inputs: Sequence[Input], device: str) -> dict[str, Any]:
    return {given.name: each(given, lambda one: _one_empty(one, device)) for given in inputs}


def _one_empty(given: Any, device: str) -> Any:
    if isinstance(given, PlainInput):
        return given.value
    return torch.zeros(given.shape, dtype=given.dtype, device=device)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTorch from logging what a trial gets wrong; the kernel warns and prints in its run."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before
