"""What every item of the battery is given: the kernel with its inputs, and what the plain comparison found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from kernels_core.kernel import call as kernel
from kernels_core.reference import Check, Result
from kernels_core.report import Report
from kernels_core.tracing.arguments import named_tensors, with_tensors
from kernels_core.tracing.complex_parts import returned_apart

Tensor = torch.Tensor
Gradients = dict[str, Tensor | None]
Kept = TypeVar("Kept")


@dataclasses.dataclass(frozen=True)
class Size:
    """The same kernel at other sizes.

    Attributes:
        label: "M=17".
        inputs: makes the inputs and the names to differentiate (None: every floating tensor).
    """

    label: str
    inputs: Callable[[], tuple[Mapping[str, Any], Sequence[str] | None]]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the caller may say about the battery.

    Attributes:
        sizes: further sizes of the inputs, where they are free.
        nondet_tol: the largest difference between calls on the same inputs; None takes any, and reports it.
        free: names of the tensor inputs that nobody gave values for, so that families of values may be tried.
        ranged: values that were given, by a function or from Python, may be drawn anew within their range.
        seed: of those.
        insist: the items were asked for by name, so that a family of values is judged by its intervals alone.
    """

    sizes: Sequence[Size] = ()
    nondet_tol: float | None = None
    free: Collection[str] = ()
    ranged: bool = False
    seed: int = 0
    insist: bool = False


@dataclasses.dataclass(frozen=True)
class Subject:
    """A kernel at fixed inputs, after the plain comparison.

    Attributes:
        function, inputs, arguments, check: as `kernel.run_forward` and `kernel.run_backward` take them.
        upstream: the upstream gradients of the plain comparison, one per floating output.
        results: what a correct kernel may return for them, by name.
        outputs, gradients: what the kernel returned in its first call.
        violated: names of the outputs and gradients that the plain comparison found violated.
        again: `verify` of the kernel without the battery, for other inputs and `wrt`; `function` and `reference` in
            place of its own.
        settings: what the caller said.
    """

    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    arguments: Mapping[str, Any]
    check: Check
    upstream: tuple[Tensor, ...]
    results: Mapping[str, Result]
    outputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None]
    violated: frozenset[str]
    again: Callable[..., Report]
    settings: Settings = Settings()
    _kept: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def wrt(self) -> list[str]:
        """Names of the inputs that are differentiated."""
        return self.check.wrt

    def free_tensors(self) -> list[str]:
        """Return the names, as the reference has them, of the numbers that nobody gave values for."""
        return [name for name in self._free() if self.check.tensors[name].dtype is not torch.bool]

    def free_masks(self) -> list[str]:
        """Return the names of the boolean tensors that nobody gave values for."""
        return [name for name in self._free() if self.check.tensors[name].dtype is torch.bool]

    def _free(self) -> Iterator[str]:
        names = dict(zip(named_tensors(self.inputs), self.check.tensors, strict=True))
        yield from (names[name] for name in self.settings.free if name in names)

    def leaves(self, wrt: Collection[str] | None = None) -> dict[str, Tensor]:
        """Return fresh copies of the tensor inputs; those in `wrt` (all that are differentiated) require a gradient."""
        leaves = kernel.fresh_leaves(self.check)
        if wrt is not None:
            for name in self.wrt:
                leaves[name].requires_grad_(name in wrt)
        return leaves

    def grad_outputs(self) -> list[Tensor]:
        """Return fresh copies of the upstream gradients."""
        return [g.clone() for g in self.upstream]

    def forward(self, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs by name, with their graph.

        Raises:
            KernelRaisedError: the kernel raised.
        """
        return kernel.run_forward(self.function, self.inputs, self.arguments, leaves)

    def backward(
        self,
        outputs: Mapping[str, Tensor],
        leaves: Mapping[str, Tensor],
        upstream: Sequence[Tensor | None] | None = None,
        *,
        retain_graph: bool = False,
    ) -> Gradients:
        """Return the gradients by name of those leaves that require one, for fresh copies of the upstream by default.

        Raises:
            KernelRaisedError: the kernel raised.
        """
        given = self.grad_outputs() if upstream is None else upstream
        return kernel.run_backward(outputs, leaves, self.check, given, retain_graph=retain_graph)

    def run(
        self, leaves: Mapping[str, Tensor] | None = None, upstream: Sequence[Tensor | None] | None = None
    ) -> dict[str, Tensor | None]:
        """Return outputs and gradients by name."""
        given = self.leaves() if leaves is None else leaves
        outputs = self.forward(given)
        gradients = self.backward(outputs, given, upstream) if kernel.shapes_agree(outputs, self.check) else {}
        return {**{name: t.detach() for name, t in outputs.items()}, **gradients}

    def check_at(self, changed: Mapping[str, Tensor]) -> Check:
        """Return the check at other values; what was traced on tensors without values holds for them too."""
        before = self.check
        arguments = with_tensors(before.arguments, {**before.tensors, **changed})
        check = Check(before.reference, arguments, profile=before.profile, wrt=before.wrt, kinks=before.kinks,
                      budget=before.budget)  # fmt: skip
        known = before.__dict__
        for name in ("forward", "joint", "joint_beside"):  # the last one is made from the other two, or is None
            if name not in known or not (known[name].value_free if known[name] else "joint" in check.__dict__):
                break
            check.__dict__[name] = known[name]
        return check

    def results_for(self, label: str, upstream: Sequence[Tensor]) -> Mapping[str, Result]:
        """Return what a correct kernel may return for other upstream gradients, evaluated once for each label."""
        return self.once(f"results {label}", lambda _: {**self.results, **self.check.gradients(list(upstream))})

    def once(self, label: str, make: Callable[[Subject], Kept]) -> Kept:
        """Return what `make` returns, made once for each label: items that look at the same runs share them."""
        if label not in self._kept:
            self._kept[label] = make(self)
        return self._kept[label]  # type: ignore[no-any-return]

    def plain(self, name: str) -> Tensor | None:
        """Return the output or gradient of the first call, or a part of a complex one."""
        if name in self.gradients:
            return self.gradients[name]
        return returned_apart({**self.outputs, **self.gradients}, self.results).get(name)
