"""The programs of one reference at fixed inputs, each traced once, and the tensors that go into them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernels_core.coverage import require_same_form
from kernels_core.errors import InvariantError, TraceError, UnsupportedOperation, UsageError, nearest
from kernels_core.program import Meta, Program
from kernels_core.rewrites.folded_norms import folded
from kernels_core.rewrites.usual_functions import in_usual_functions, with_sigmoids
from kernels_core.tracing import derivatives
from kernels_core.tracing import trace as tracing
from kernels_core.tracing.complex_parts import apart, differentiable, whole_metas

if TYPE_CHECKING:
    from kernels_core.reference import Reference

Tensor = torch.Tensor


class Programs:
    """The programs of one reference at fixed inputs.

    Attributes:
        reference: with its declared backward, where it has one.
        arguments: of the reference, by name.
        tensors: among them, by name ("x[0]" in a list).
        asked: names of those whose gradient is asked for.
    """

    def __init__(self, reference: Reference, arguments: Mapping[str, Any], wrt: Sequence[str] | None) -> None:
        """Bind the reference to arguments by name; `wrt` None means all floating tensors.

        Raises:
            UsageError: a tensor of a kind that programs cannot have, or an unknown name.
        """
        self.reference, self.arguments = reference, arguments
        self.tensors = tracing.named_tensors(arguments)
        for name, tensor in self.tensors.items():
            if tensor.is_meta or tensor.dtype is torch.complex32:
                kind = "meta" if tensor.is_meta else str(tensor.dtype).removeprefix("torch.")
                raise UsageError(f"{name}: {kind} tensors are not supported\ngive others")
            if tensor.layout is not torch.strided:
                raise UsageError(
                    f"{name}: sparse tensors are not supported\n"
                    "give values and indices as inputs of a function that makes one of them"
                )
        self.asked = self._differentiated(wrt)

    @functools.cached_property
    def wrt(self) -> list[str]:
        """Names of the inputs that are differentiated: none where no output is floating, as those of a quantiser."""
        return self.asked if self.cotangents else []

    def _differentiated(self, wrt: Sequence[str] | None) -> list[str]:
        floating = [name for name, t in self.tensors.items() if differentiable(t.dtype)]
        if wrt is None:
            return floating
        for name in wrt:
            if name not in floating:
                raise UsageError(
                    f"no floating tensor input {name!r}{nearest(name, floating)}\nknown: {', '.join(floating)}"
                )
        return [name for name in floating if name in wrt]

    @functools.cached_property
    def forward(self) -> Program:
        """The program of the forward."""
        if self._together is not None:
            return self._together.forward(self.parts)
        with _named(self.reference.name):
            program = tracing.trace(self.reference.function, self.arguments)
        if not program.outputs:
            given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
            remedy = "return one, or a tuple, list or dict of them" if self.tensors else f"none was given: {given}"
            raise TraceError(f"the reference {self.reference.name} returned no tensor\n{remedy}")
        return program

    @functools.cached_property
    def _together(self) -> Program | None:
        """The program of outputs and gradients by one trace; None where the forward must be known first, or is all."""
        if not self.asked:
            return None
        try:
            return derivatives.trace_together(self.reference.function, self.arguments, self.asked)
        except TraceError:  # the forward may have a program, and says better why there is none
            return None

    @functools.cached_property
    def joint(self) -> Program:
        """The program of outputs and gradients."""
        if not self.wrt:
            return self.forward
        if self._together is not None:
            return self._together
        with _named(self.reference.name):
            return derivatives.trace_vjp(self.reference.function, self.arguments, self.wrt, self.forward)

    @functools.cached_property
    def joint_beside(self) -> Program | None:
        """The same with other forms: usual functions for their formulas, folded norms; None where it has none."""
        found = self._in_other_forms(derivatives.trace_vjp)
        return with_sigmoids(found or self.joint) or found

    @functools.cached_property
    def forward_beside(self) -> Program | None:
        """The program of the forward with its norms of given statistics folded, where it has some."""
        return folded(self.forward)

    @functools.cached_property
    def gradients_program(self) -> tuple[Program, Program | None]:
        """The program of the gradients without outputs that they do not need, and the one beside it."""
        names = [name for name in self.joint.outputs if name.startswith("grad_")]
        return self.joint.only(names), None if self.joint_beside is None else self.joint_beside.only(names)

    def _in_other_forms(self, trace: Callable[..., Program], *given: Any) -> Program | None:
        usual = in_usual_functions(self.forward)
        forward = folded(usual or self.forward) or usual
        if forward is None:
            return None
        try:
            return trace(self.reference.function, self.arguments, self.wrt, *given, forward, flat=True)
        except TraceError:  # nothing is granted then
            return None

    def tangents_program(self) -> tuple[Program, Program | None]:
        """Return the program of the tangents, and the one beside it."""
        with _named(self.reference.name):
            program = derivatives.trace_jvp(self.reference.function, self.arguments, self.wrt, self.forward)
            return program, self._in_other_forms(derivatives.trace_jvp)

    def second_order_program(self, names: Sequence[str]) -> tuple[Program, Program | None]:
        """Return the program of the gradients of these inputs' gradients, and the one beside it."""
        with _named(self.reference.name):
            program = derivatives.trace_double_backward(
                self.reference.function, self.arguments, self.wrt, names, self.forward
            )
            return program, self._in_other_forms(derivatives.trace_double_backward, names)

    def declared_backward_program(self) -> Program:
        """Return the program of the declared backward."""
        if self.reference.declared is None:
            raise InvariantError("no declared backward")
        with _declared(getattr(self.reference.declared, "__name__", "")):
            return derivatives.trace_declared(
                self.reference.declared, self.reference.function, self.arguments, self.wrt, self.forward
            )

    @property
    def cotangents(self) -> dict[str, Meta]:
        """Shape and dtype of the upstream gradient of each floating output, by output name."""
        return {n: m for n, m in self.whole_outputs.items() if differentiable(m.dtype)}

    @property
    def whole_outputs(self) -> dict[str, Meta]:
        """Shape and dtype of the outputs, complex ones whole: as a kernel returns them."""
        return whole_metas(self.forward.output_metas, self.forward.complex_outputs)

    @functools.cached_property
    def parts(self) -> dict[str, Tensor]:
        """The tensors as inputs of programs, complex ones in parts."""
        return apart({name: tensor.detach() for name, tensor in self.tensors.items()})

    @property
    def has_complex(self) -> bool:
        """True where an input or output is complex."""
        return bool(self.forward.complex_outputs) or any(t.is_complex() for t in self.tensors.values())

    @property
    def device(self) -> torch.device:
        """Device of the inputs, the CPU where there is none."""
        return next((t.device for t in self.tensors.values()), torch.device("cpu"))

    def upstream(self, grads: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """Return the upstream gradients by input name of the program, complex ones in parts; None means zero."""
        expected = self.cotangents
        if len(grads) != len(expected):
            raise UsageError(f"expected {len(expected)} upstream gradients, one per floating output, got {len(grads)}")
        given = {}
        for (name, meta), grad in zip(expected.items(), grads, strict=True):
            grad = torch.zeros(meta.shape, dtype=meta.dtype, device=self.device) if grad is None else grad
            given[tracing.cotangent_name(name)] = require_same_form(
                grad, meta.shape, meta.dtype, tracing.cotangent_name(name)
            ).detach()
        return apart(given)

    def as_inputs(
        self, given: Mapping[str, Tensor], known: Mapping[str, str], title: Callable[[str], str]
    ) -> dict[str, Tensor]:
        """Return tensors that go with inputs (`known`: key -> input name) under the names of the program."""
        found = {}
        for key, value in given.items():
            if key not in known:
                raise UsageError(f"unknown name {key!r}{nearest(key, known)}\nknown: {', '.join(known)}")
            like = self.tensors[known[key]]
            found[title(key)] = require_same_form(value, like.shape, like.dtype, title(key)).detach()
        if not found:
            raise UsageError(f"nothing to differentiate: give a tensor for at least one of {', '.join(known)}")
        return apart(found)

    def meta_of(self, name: str) -> Meta:
        """Return shape and dtype of a derivative: "grad_X" has those of input X, or of upstream gradient X."""
        own = name.removeprefix("grad_")
        if own in self.parts:
            return Meta(tuple(self.parts[own].shape), self.parts[own].dtype)
        return self.forward.output_metas[own.removeprefix("grad_").removeprefix("tangent_")]


@contextlib.contextmanager
def _declared(name: str) -> Iterator[None]:
    """Let an error of tracing say that it means the declared backward."""
    try:
        yield
    except TraceError as error:
        fact, cannot, why = str(error).partition("the reference cannot be traced: ")
        if fact or not cannot:
            raise
        raise TraceError(
            f"the declared backward {name} cannot be traced: {why.splitlines()[0]}\n"
            "it is f(inputs, outputs, grads), made of PyTorch operations on tensors"
        ) from error


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Let an error of tracing say which reference it means."""
    try:
        yield
    except UnsupportedOperation:
        raise
    except TraceError as error:
        raise TraceError(str(error).replace("the reference ", f"the reference {name} ", 1)) from error
