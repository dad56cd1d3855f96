"""A check: a reference at fixed inputs, its programs traced once, and what they admit."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kernels_core.coverage import Source, require_same_form
from kernels_core.declared import as_given, as_rounded, require_agreement
from kernels_core.enclosure import Enclosure
from kernels_core.errors import InvariantError, TraceError, UnsupportedOperation, UsageError, nearest
from kernels_core.exact.tier import Budget, FlatInputs
from kernels_core.filter import float_environment
from kernels_core.filter.run import Filtered, run_filter
from kernels_core.profiles import resolve
from kernels_core.profiles.knobs import Given
from kernels_core.program import Meta, Program
from kernels_core.result import ComplexResult, Result, joined
from kernels_core.rewrites.usual_functions import in_usual_functions
from kernels_core.tracing import derivatives
from kernels_core.tracing import trace as tracing
from kernels_core.tracing.complex_parts import REAL, apart, differentiable, whole_metas

if TYPE_CHECKING:
    from kernels_core.reference import Reference

Tensor = torch.Tensor


class Check:
    """One reference at fixed inputs: its programs, traced once, and what they admit."""

    def __init__(
        self,
        reference: Reference,
        arguments: Mapping[str, Any],
        *,
        profile: Given | None = None,
        bound: str | None = None,
        wrt: Sequence[str] | None = None,
        kinks: str = "accept",
        budget: Budget | None = None,
    ) -> None:
        """Bind the reference to arguments by name.

        Raises:
            UsageError: an unknown profile, knob, bound, kink mode or input name.
        """
        self.reference, self.arguments = reference, arguments
        self.tensors = tracing.named_tensors(arguments)
        for name, tensor in self.tensors.items():
            if tensor.is_meta or (tensor.is_complex() and tensor.dtype not in REAL):
                kind = "meta" if tensor.is_meta else str(tensor.dtype).removeprefix("torch.")
                raise UsageError(f"{name}: {kind} tensors are not supported\ngive others")
        self.profile = resolve(
            reference.profile if profile is None else profile,
            reference.bound if bound is None else bound,
            self.device,
            {t.dtype for t in self.tensors.values()},
        )
        if kinks not in ("accept", "convention"):
            raise UsageError(f'kinks: expected "accept" or "convention", got {kinks!r}')
        self.kinks, self.budget = kinks, budget or Budget()
        self.wrt = self._differentiated(wrt)
        self.declared_program: Program | None = None  # of the declared backward, once it was traced
        self.failure = 0.0  # largest probability that a grant given so far does not hold (growth.py)

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
        with _named(self.reference.name):
            program = tracing.trace(self.reference.function, self.arguments)
        if not program.outputs:
            raise TraceError("the reference returned no tensor")
        return program

    @functools.cached_property
    def joint(self) -> Program:
        """The program of outputs and gradients."""
        with _named(self.reference.name):
            return derivatives.trace_vjp(self.reference.function, self.arguments, self.wrt, self.forward)

    @functools.cached_property
    def joint_beside(self) -> Program | None:
        """The same with formulas of usual functions taken for these, where the reference has some."""
        return self._in_usual_functions(derivatives.trace_vjp)

    def _in_usual_functions(self, trace: Callable[..., Program], *given: Any) -> Program | None:
        forward = in_usual_functions(self.forward)
        if forward is None:
            return None
        try:
            return trace(self.reference.function, self.arguments, self.wrt, *given, forward, flat=True)
        except TraceError:  # nothing is granted then
            return None

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
        return apart(self.tensors)

    @property
    def has_complex(self) -> bool:
        """True where an input or output is complex."""
        return bool(self.forward.complex_outputs) or any(t.is_complex() for t in self.tensors.values())

    def whole(self, results: Mapping[str, Result]) -> dict[str, Result | ComplexResult]:
        """Return results with those of the two parts of a complex tensor as one."""
        known = {*self.forward.complex_outputs, *(n for n, t in self.tensors.items() if t.is_complex())}
        own = {f"{prefix}{name}" for name in known for prefix in ("", "grad_", "grad_grad_", "tangent_")}
        return joined(results, own)

    @property
    def device(self) -> torch.device:
        """Device of the inputs, the CPU where there is none."""
        return next((t.device for t in self.tensors.values()), torch.device("cpu"))

    def outputs(self) -> dict[str, Result]:
        """Return the results of the forward alone."""
        return self._results(self.forward, self.parts, list(self.forward.outputs))

    def gradients(self, grads: Sequence[Tensor | None]) -> dict[str, Result]:
        """Return the gradients for these upstream gradients (None means zero)."""
        return {n: r for n, r in self.both(grads).items() if n.startswith("grad_")}

    def both(self, grads: Sequence[Tensor | None], *, rounded_inputs: bool = False) -> dict[str, Result]:
        """Return the results of outputs and gradients from one evaluation.

        Args:
            grads: the upstream gradients (None means zero).
            rounded_inputs: admit what the inputs and upstream gradients give, rounded once more (`as_rounded`).
        """
        if not self.wrt and not rounded_inputs:
            return self.outputs()
        inputs: dict[str, Tensor | Enclosure] = {**self.parts, **self.upstream(grads)}
        if rounded_inputs:
            inputs = {name: as_rounded(value) for name, value in inputs.items() if isinstance(value, Tensor)}
        if not self.wrt:
            return self._results(self.forward, inputs, list(self.forward.outputs))
        results = self._results(self.joint, inputs, list(self.joint.outputs))
        results = self._widened(results, self.joint_beside, inputs)
        if self.reference.declared is not None:
            stored = {name: results[name].enclosure for name in self.forward.outputs}
            results.update(self._declared(results, inputs, stored))
        return results

    def ties(self, grads: Sequence[Tensor | None]) -> int:
        """Return how many exact ties the program of the gradients meets at these inputs."""
        inputs: dict[str, Tensor | Enclosure] = {**self.parts, **self.upstream(grads)}
        return run_filter(self.joint, inputs, self.profile, rad=False).ties

    def tangents(self, tangents: Mapping[str, Tensor]) -> dict[str, Result]:
        """Return the tangents of the outputs for these tangents of inputs, by name; all of `wrt` must have one."""
        self._require_true_derivative()
        known = {n: n for n, t in self.tensors.items() if differentiable(t.dtype)}
        given = self._as_inputs(tangents, known, derivatives.tangent_name)
        with _named(self.reference.name):
            program = derivatives.trace_jvp(self.reference.function, self.arguments, self.wrt, self.forward)
            beside = self._in_usual_functions(derivatives.trace_jvp)
        inputs = {**self.parts, **given}
        return self._widened(self._results(program, inputs, list(program.outputs)), beside, inputs)

    def second_order(self, grads: Sequence[Tensor | None], vectors: Mapping[str, Tensor]) -> dict[str, Result]:
        """Return the gradients of sum <vector, gradient> over the first-order gradients that have a vector, by name."""
        self._require_true_derivative()
        given = self._as_inputs(vectors, {f"grad_{n}": n for n in self.wrt}, tracing.cotangent_name)
        names = [name for name in self.wrt if f"grad_{name}" in vectors]
        with _named(self.reference.name):
            program = derivatives.trace_double_backward(
                self.reference.function, self.arguments, self.wrt, names, self.forward
            )
            beside = self._in_usual_functions(derivatives.trace_double_backward, names)
        inputs = {**self.parts, **self.upstream(grads), **given}
        return self._widened(self._results(program, inputs, list(program.outputs)), beside, inputs)

    def _require_true_derivative(self) -> None:
        if self.reference.surrogate:
            raise UsageError(
                f"{self.reference.name} declares its gradient as a surrogate\n"
                "what follows from it in forward mode or in the second order is not declared"
            )

    def _as_inputs(
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

    def given_outputs(self, grads: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> dict[str, Result]:
        """Return the gradients for a backward that is given these outputs of its forward."""
        inputs: dict[str, Tensor | Enclosure] = {**self.parts, **self.upstream(grads)}
        results = self._results(self.joint, inputs, list(self.joint.outputs))
        whole = self.whole_outputs
        if len(outputs) != len(whole):
            raise UsageError(f"expected {len(whole)} outputs ({', '.join(whole)}), got {len(outputs)}")
        returned = {n: require_same_form(t, *m, n) for (n, m), t in zip(whole.items(), outputs, strict=True)}
        stored = {name: as_given(results[name], actual) for name, actual in apart(returned).items()}
        return self._declared(results, inputs, stored)

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

    def _results(
        self, program: Program, inputs: Mapping[str, Tensor | Enclosure], names: list[str]
    ) -> dict[str, Result]:
        float_environment.require()
        try:
            filtered = run_filter(program, inputs, self.profile)
        except Exception:
            tracing.require_callable(self.reference.function, self.arguments)
            raise
        self.failure += filtered.failure
        at_kinks = (
            run_filter(program, inputs, self.profile, kinks=True, rad=False) if self._has_kinks(filtered) else None
        )
        plain = FlatInputs({name: v.mid if isinstance(v, Enclosure) else v for name, v in inputs.items()})
        return {name: self._result(name, program, filtered, at_kinks, plain) for name in names}

    def _widened(
        self, results: dict[str, Result], program: Program | None, inputs: Mapping[str, Tensor | Enclosure]
    ) -> dict[str, Result]:
        """Return the results with the larger bound of theirs and of the program beside theirs."""
        if program is None:
            return results
        beside = run_filter(program, inputs, self.profile, rad=False).enclosures
        return {name: result.widened(beside.get(name)) for name, result in results.items()}

    def _has_kinks(self, filtered: Filtered) -> bool:
        return self.kinks == "accept" and filtered.ties > 0

    def _result(
        self,
        name: str,
        program: Program,
        filtered: Filtered,
        at_kinks: Filtered | None,
        plain: Mapping[str, np.ndarray],
    ) -> Result:
        if program.outputs[name] is None:
            return self._zero(name)
        source = Source(program, name, plain, filtered.integers)
        kinks = at_kinks.enclosures[name] if at_kinks is not None and not name.startswith("output") else None
        return Result(
            name, program.output_metas[name], filtered.enclosures[name], filtered.rads[name], source, kinks, self.budget
        )

    def _zero(self, name: str) -> Result:
        like = self._like(name)
        zero = Enclosure(torch.zeros(like.shape, dtype=torch.float64, device=self.device))
        return Result(name, like, zero, 0.0, None, None, self.budget)

    def _like(self, name: str) -> Meta:
        """Return shape and dtype of a derivative: "grad_X" has those of input X, or of upstream gradient X."""
        own = name.removeprefix("grad_")
        if own in self.parts:
            return Meta(tuple(self.parts[own].shape), self.parts[own].dtype)
        return self.forward.output_metas[own.removeprefix("grad_").removeprefix("tangent_")]

    def _declared(
        self, traced: Mapping[str, Result], inputs: Mapping[str, Tensor | Enclosure], stored: Mapping[str, Enclosure]
    ) -> dict[str, Result]:
        """Return the gradients with the bound of the declared backward, run on the enclosures of the stored outputs."""
        program = self._trace_declared()
        self.declared_program = program
        given = {**inputs, **stored}
        filtered = run_filter(program, {name: given[name] for name in program.inputs}, self.profile)
        self.failure += filtered.failure
        found = {}
        for label in program.outputs:
            result, meta = traced[label], program.output_metas.get(label)
            if meta is None or meta != result.meta:
                raise TraceError(f"the declared backward returned {meta} for {label}, expected {result.meta}")
            found[label] = self._merged(result, filtered, label)
        return found

    def _trace_declared(self) -> Program:
        if self.reference.declared is None:
            raise InvariantError("no declared backward")
        return derivatives.trace_declared(
            self.reference.declared, self.reference.function, self.arguments, self.wrt, self.forward
        )

    def _merged(self, traced: Result, filtered: Filtered, name: str) -> Result:
        declared, rad = filtered.enclosures[name], filtered.rads[name]
        if self.reference.surrogate:
            return dataclasses.replace(traced, enclosure=declared, rad=rad, source=None, kinks=None)
        require_agreement(traced, declared, rad, name)
        bound = declared.bound_or_zero().expand(declared.shape)
        own = traced.rad if isinstance(traced.rad, Tensor) else traced.rad_abs()
        return dataclasses.replace(traced, enclosure=dataclasses.replace(traced.enclosure, bound=bound), rad=own)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Let an error of tracing say which reference it means."""
    try:
        yield
    except UnsupportedOperation:
        raise
    except TraceError as error:
        raise TraceError(str(error).replace("the reference ", f"the reference {name} ", 1)) from error
