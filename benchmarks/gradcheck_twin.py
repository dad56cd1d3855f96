"""A case for torch.autograd.gradcheck: the kernel run in float64, with a planted fault."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernels_core.kernel.call import draw_upstream, fresh_leaves, run_forward, run_kernel
from kernels_core.power import Laboratory
from kernels_core.power.results import KINDS
from kernels_core.power.score import Mutant
from kernels_core.power.steps import Fault, Steps
from kernels_core.verify import prepared

Tensor = torch.Tensor
MOST = 64  # elements of all differentiated inputs: gradcheck runs the kernel twice for each, for every mutant


class Twin:
    """The kernel of a laboratory on float64 inputs."""

    def __init__(self, laboratory: Laboratory) -> None:
        """Prepare the float64 run."""
        self.function = laboratory.function
        self.inputs: Mapping[str, Any] = {
            n: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v
            for n, v in laboratory.inputs.items()
        }
        self.check = prepared(
            self.function, self.inputs, reference=laboratory.check.reference, wrt=laboratory.check.wrt
        )
        self.upstream = draw_upstream(self.check, 0)

    @property
    def elements(self) -> int:
        """Number of elements of the differentiated inputs."""
        return sum(self.check.tensors[name].numel() for name in self.check.wrt)

    def passes(self, mutant: Mutant | None) -> bool:
        """Return True where gradcheck, with its defaults, accepts the kernel with this fault."""
        twin, names = self, list(self.check.wrt)

        class Kernel(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *values: Tensor) -> Any:
                ctx.save_for_backward(*values)
                found = twin.run(dict(zip(names, values, strict=True)), mutant, None)
                return tuple(found.values())

            @staticmethod
            def backward(ctx: Any, *grads: Tensor) -> Any:
                found = twin.run(dict(zip(names, ctx.saved_tensors, strict=True)), mutant, grads)
                return tuple(found[f"grad_{name}"] for name in names)

        leaves = [self.inputs[name].detach().clone().requires_grad_() for name in names]
        try:
            return bool(torch.autograd.gradcheck(Kernel.apply, leaves, raise_exception=False))
        except Exception:
            return False

    def run(
        self, values: Mapping[str, Tensor], mutant: Mutant | None, grads: Sequence[Tensor] | None
    ) -> dict[str, Tensor | None]:
        """Return the outputs, with upstream gradients the gradients too, of the damaged kernel."""
        self.check.tensors.update({name: value.detach() for name, value in values.items()})
        fault = _fault(mutant)
        with Steps(fault) if fault is not None else contextlib.nullcontext():
            found = self._both(grads) if grads is not None else self._forward()
        if mutant is None or not mutant.place.startswith("result "):
            return found
        name = mutant.place.removeprefix("result ")
        value = found.get(name)
        changed = None if value is None else KINDS[mutant.kind](value.detach())
        return found if changed is None else {**found, name: changed}

    def _forward(self) -> dict[str, Tensor | None]:
        leaves = fresh_leaves(self.check)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            outputs = run_forward(self.function, self.inputs, self.check.arguments, leaves)
        return {name: value.detach() for name, value in outputs.items()}

    def _both(self, grads: Sequence[Tensor]) -> dict[str, Tensor | None]:
        names = list(self.check.forward.outputs)
        given = dict(zip(names, grads, strict=True))
        upstream = [given[name] for name in self.check.cotangents]
        outputs, gradients = run_kernel(self.function, self.inputs, self.check.arguments, self.check, upstream)
        return {**outputs, **(gradients or {})}


def _fault(mutant: Mutant | None) -> Fault | None:
    """Return the fault of a mutant of a single operation."""
    if mutant is None or not mutant.place.startswith("operation "):
        return None
    number, operation = mutant.place.removeprefix("operation ").split(", ")
    return Fault(int(number), operation, mutant.kind)


def growth(sizes: Sequence[int] = (24, 96, 384, 1536)) -> list[tuple[int, float]]:
    """Return the seconds that gradcheck takes for an undamaged softmax of so many elements."""
    found = []
    for size in sizes:
        x = torch.randn(size // 12, 12, dtype=torch.float64, requires_grad=True)
        start = time.process_time()
        torch.autograd.gradcheck(lambda t: torch.softmax(t, -1), (x,))
        found.append((size, time.process_time() - start))
    return found
