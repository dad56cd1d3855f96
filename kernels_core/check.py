"""A check: a reference at fixed inputs, and what its programs admit."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kernels_core.coverage import Source, require_same_form
from kernels_core.declared import as_given, as_rounded, require_agreement
from kernels_core.enclosure import Enclosure
from kernels_core.errors import TraceError, UsageError
from kernels_core.exact.tier import Budget, FlatInputs
from kernels_core.filter import float_environment
from kernels_core.filter.run import Filtered, run_filter
from kernels_core.profiles import resolve
from kernels_core.profiles.knobs import Given
from kernels_core.program import Program
from kernels_core.programs import Programs
from kernels_core.result import ComplexResult, Result, joined
from kernels_core.tracing import derivatives
from kernels_core.tracing import trace as tracing
from kernels_core.tracing.complex_parts import apart, differentiable

if TYPE_CHECKING:
    from kernels_core.reference import Reference

Tensor = torch.Tensor


class Check(Programs):
    """One reference at fixed inputs, and what its programs admit."""

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
        super().__init__(reference, arguments, wrt)
        self.profile = resolve(
            reference.profile if profile is None else profile,
            reference.bound if bound is None else bound,
            self.device,
            {t.dtype for t in self.tensors.values()},
        )
        if kinks not in ("accept", "convention"):
            raise UsageError(f'kinks: expected "accept" or "convention", got {kinks!r}')
        self.kinks, self.budget = kinks, budget or Budget()
        self.declared_program: Program | None = None  # of the declared backward, once it was traced
        self.failure = 0.0  # largest probability that a grant given so far does not hold (growth.py)

    def whole(self, results: Mapping[str, Result]) -> dict[str, Result | ComplexResult]:
        """Return results with those of the two parts of a complex tensor as one."""
        known = {*self.forward.complex_outputs, *(n for n, t in self.tensors.items() if t.is_complex())}
        own = {f"{prefix}{name}" for name in known for prefix in ("", "grad_", "grad_grad_", "tangent_")}
        return joined(results, own)

    def outputs(self) -> dict[str, Result]:
        """Return the results of the forward alone."""
        results = self._results(self.forward, self.parts, list(self.forward.outputs))
        return self._widened(results, self.forward_beside, self.parts)

    def gradients(self, grads: Sequence[Tensor | None]) -> dict[str, Result]:
        """Return the gradients for these upstream gradients (None means zero); outputs are evaluated where needed."""
        if not self.wrt or self.reference.declared is not None:
            return {n: r for n, r in self.both(grads).items() if n.startswith("grad_")}
        program, beside = self.gradients_program
        inputs: dict[str, Tensor | Enclosure] = {**self.parts, **self.upstream(grads)}
        return self._widened(self._results(program, inputs, list(program.outputs)), beside, inputs)

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
        given = self.as_inputs(tangents, known, derivatives.tangent_name)
        program, beside = self.tangents_program()
        inputs = {**self.parts, **given}
        return self._widened(self._results(program, inputs, list(program.outputs)), beside, inputs)

    def second_order(self, grads: Sequence[Tensor | None], vectors: Mapping[str, Tensor]) -> dict[str, Result]:
        """Return the gradients of sum <vector, gradient> over the first-order gradients that have a vector, by name."""
        self._require_true_derivative()
        given = self.as_inputs(vectors, {f"grad_{n}": n for n in self.wrt}, tracing.cotangent_name)
        names = [name for name in self.wrt if f"grad_{name}" in vectors]
        program, beside = self.second_order_program(names)
        inputs = {**self.parts, **self.upstream(grads), **given}
        return self._widened(self._results(program, inputs, list(program.outputs)), beside, inputs)

    def _require_true_derivative(self) -> None:
        if self.reference.surrogate:
            raise UsageError(
                f"{self.reference.name} declares its gradient as a surrogate\n"
                "what follows from it in forward mode or in the second order is not declared"
            )

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
        again = functools.partial(run_filter, program, inputs, self.profile, rad=False)
        at_kinks = again(kinks=True) if self._has_kinks(filtered) else None
        at_nan = again(at_nan=True) if self.kinks == "accept" and filtered.orders_of_nan else None
        plain = FlatInputs({name: v.mid if isinstance(v, Enclosure) else v for name, v in inputs.items()})
        return {name: self._result(name, program, filtered, at_kinks, at_nan, plain) for name in names}

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
        at_nan: Filtered | None,
        plain: Mapping[str, np.ndarray],
    ) -> Result:
        if program.outputs[name] is None:
            return self._zero(name)
        source = Source(program, name, plain, filtered.integers)
        own, meta = filtered.enclosures[name], program.output_metas[name]
        kinks, nan = (
            None if run is None or name.startswith("output") else run.enclosures[name] for run in (at_kinks, at_nan)
        )
        return Result(name, meta, own, filtered.rads[name], source, kinks, nan, self.budget)

    def _zero(self, name: str) -> Result:
        like = self.meta_of(name)
        zero = Enclosure(torch.zeros(like.shape, dtype=torch.float64, device=self.device))
        return Result(name, like, zero, 0.0, None, budget=self.budget)

    def _declared(
        self, traced: Mapping[str, Result], inputs: Mapping[str, Tensor | Enclosure], stored: Mapping[str, Enclosure]
    ) -> dict[str, Result]:
        """Return the gradients with the bound of the declared backward, run on the enclosures of the stored outputs."""
        program = self.declared_backward_program()
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

    def _merged(self, traced: Result, filtered: Filtered, name: str) -> Result:
        declared, rad = filtered.enclosures[name], filtered.rads[name]
        if self.reference.surrogate:
            return dataclasses.replace(traced, enclosure=declared, rad=rad, source=None, kinks=None, at_nan=None)
        require_agreement(traced, declared, rad, name)
        bound = declared.bound_or_zero().expand(declared.shape)
        own = traced.rad if isinstance(traced.rad, Tensor) else traced.rad_abs()
        return dataclasses.replace(traced, enclosure=dataclasses.replace(traced.enclosure, bound=bound), rad=own)
