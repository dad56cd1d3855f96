"""A reference: a plain PyTorch function that says what is to be computed, and what a kernel may return for it.

reference(A, B)                   -> Result, or a tuple of Results for several outputs
reference.backward(A, B, grad)    -> {"grad_A": Result, "grad_B": Result}
reference.jvp(A, B, tangents={"A": tangent})                -> {"tangent_output": Result}
reference.double_backward(A, B, grad, {"grad_A": vector})   -> the same names, and {"grad_grad_output": Result}
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kernels_core import derivatives, tracing
from kernels_core.callee import plain_function, title_of
from kernels_core.coverage import Element, Figures, Source, decide, require_same_form
from kernels_core.enclosure import Enclosure
from kernels_core.errors import InvariantError, TraceError, UnsupportedOperation, UsageError, nearest
from kernels_core.exact import Budget, FlatInputs, resolve
from kernels_core.filter import Filtered, run_filter
from kernels_core.formats import format_of, next_down, next_up, round_ball, round_rational, round_to_nearest
from kernels_core.profiles import PROFILES, Profile
from kernels_core.program import Meta, Program

Tensor = torch.Tensor
EXACT_LIMIT = 4096  # more exact values than this are not worth FLINT's time for display


@dataclasses.dataclass(frozen=True)
class Result:
    """What a correct kernel may return for one output or gradient.

    Attributes:
        name: "output" or "grad_A".
        meta: shape and dtype.
        enclosure: float64 midpoint and bound.
        rad: bound on |mid - exact|, a tensor or a fraction of the bound.
        source: for the exact tier.
        kinks: the enclosure at kinks, where any element of the subdifferential interval is accepted; None where
            the inputs meet no kink or the convention is insisted on.
        budget: of the exact tier.
    """

    name: str
    meta: Meta
    enclosure: Enclosure
    rad: Tensor | float
    source: Source | None
    kinks: Enclosure | None = None
    budget: Budget = dataclasses.field(default_factory=Budget)

    def __repr__(self) -> str:
        """Return "Result(grad_A, float32[16, 32])"."""
        return f"Result({self.name}, {str(self.meta.dtype)[6:]}{list(self.meta.shape)})"

    def covers(self, actual: Tensor) -> Tensor:
        """Return a BoolTensor of the shape of `actual`: True where a correct kernel may, for certain, return the value.

        Args:
            actual: the kernel's result, in the reference's shape and dtype, on any device.

        Raises:
            UsageError: the shape or dtype is another.
        """
        return self.verdict(actual) == Element.COVERED

    def verdict(self, actual: Tensor) -> Tensor:
        """Return an int8 tensor of `Element` codes: covered, violated, undecided, unconstrained."""
        return self.verdict_and_kinks(actual)[0]

    def verdict_and_kinks(self, actual: Tensor, figures: Figures | None = None) -> tuple[Tensor, Tensor]:
        """Return the codes, and True where the element was accepted only because it lies at a kink.

        Args:
            actual: as `covers`.
            figures: takes in the errors, where given.
        """
        actual = require_same_form(actual, self.meta.shape, self.meta.dtype, self.name).detach()
        actual = actual.to(self.enclosure.mid.device)
        verdict = decide(actual, self.enclosure, self.rad, self.source, self.budget, figures)
        accepted = torch.zeros_like(verdict, dtype=torch.bool)
        if self.kinks is not None:
            there = decide(actual, self.kinks, self.rad_abs(), None, self.budget)
            accepted = (there == Element.COVERED) & (verdict != Element.COVERED)
            verdict = torch.where(accepted, int(Element.COVERED), verdict).to(torch.int8)
        return verdict, accepted

    def rad_abs(self) -> Tensor:
        """Return the bound on |mid - exact| of each element as a tensor (the width of a kink is no error of ours)."""
        own = self.rad if isinstance(self.rad, Tensor) else self.rad * self.enclosure.bound_or_zero()
        return own.expand(self.enclosure.shape)

    @functools.cached_property
    def exact(self) -> Tensor:
        """The exact value as float64: correctly rounded where the exact tier reached it, else within `rad` of it."""
        return self.exact_at(torch.arange(self.meta.numel)).reshape(self.meta.shape)

    def exact_at(self, index: Tensor) -> Tensor:
        """Return the exact values at flat indices, as `exact`; at most 4096 of them are evaluated in FLINT."""
        mid = self.enclosure.mid.to(torch.float64).reshape(-1)[index.to(self.enclosure.mid.device)].cpu().clone()
        if self.source is None or not self.enclosure.floating or len(index) > EXACT_LIMIT:
            return mid
        places = {int(flat): place for place, flat in enumerate(index)}

        def settle(values: Any, found: np.ndarray) -> np.ndarray:
            return np.array(
                [_store_rounded(mid, places[int(i)], v) for v, i in zip(values, found, strict=True)], dtype=bool
            )

        resolve(
            self.source.program,
            self.source.name,
            np.array(sorted(places)),
            self.source.inputs,
            self.source.integers,
            settle,
            self.budget,
        )
        return mid

    @property
    def lower(self) -> Tensor:
        """The smallest admissible value, in the result's dtype."""
        return self._end(-1.0)

    @property
    def upper(self) -> Tensor:
        """The largest admissible value, in the result's dtype."""
        return self._end(1.0)

    def _end(self, side: float) -> Tensor:
        if not self.enclosure.floating:
            return self.enclosure.mid
        target = self.enclosure.mid + side * self.enclosure.bound_or_zero()
        target = torch.where(self.enclosure.mid.isfinite(), target, self.enclosure.mid)
        fmt = format_of(self.meta.dtype)
        end = round_to_nearest(target, fmt)
        beyond = (end - target) * side > 0
        inward = next_down(end, fmt) if side > 0 else next_up(end, fmt)
        return torch.where(beyond & end.isfinite(), inward, end).to(self.meta.dtype)


def _store_rounded(mid: Tensor, index: int, value: Any) -> bool:
    if isinstance(value, (int, bool)):
        mid[index] = float(value)
        return True
    fmt = format_of(torch.float64)
    rounded = round_rational(value, fmt) if hasattr(value, "q") else round_ball(value, fmt)
    if rounded is not None:
        mid[index] = rounded
    return rounded is not None


@dataclasses.dataclass(frozen=True, eq=False)
class Reference:
    """A reference with its derivative.

    Attributes:
        function: a plain PyTorch function.
        name: how it is called in reports.
        declared: `reference_backward(inputs, outputs, grads)`, the route by which correct kernels differentiate where
            that is not the traced derivative; its dtypes grant the roundings of the gradients.
        surrogate: the declared backward is meant to differ from the derivative: its own exact value is the reference.
        keeps: the function that returns everything a fused forward stores for its backward, (out, logsumexp) say, where
            `function` returns less; `backward_covers` takes it when it is given that many outputs.
        algorithms: named variants that differ in rounding, reached as attributes.
    """

    function: Callable[..., Any]
    name: str = ""
    declared: Callable[..., Any] | None = None
    surrogate: bool = False
    keeps: Callable[..., Any] | None = None
    algorithms: Mapping[str, Reference] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """Return "Reference(matmul(A, B))"."""
        return f"Reference({self.name}({', '.join(self.signature.parameters)}))"

    def __getattr__(self, name: str) -> Reference:
        """Return the algorithm called `name`."""
        algorithms: Mapping[str, Reference] = self.__dict__.get("algorithms", {})
        if name in algorithms:
            return algorithms[name]
        raise AttributeError(f"{self.name or 'this reference'} has no algorithm {name!r}{nearest(name, algorithms)}")

    @property
    def signature(self) -> inspect.Signature:
        """Signature of the function."""
        return tracing.signature_of(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what a kernel may return for these inputs: a Result, or a tuple of Results in output order.

        Raises:
            TraceError: the function cannot be traced.
        """
        check = Check(self, tracing.bind(self.function, args, kwargs))
        results = tuple(check.outputs().values())
        return results[0] if len(results) == 1 else results

    def backward(
        self,
        *args: Any,
        profile: str | Profile = "ieee",
        wrt: Sequence[str] | None = None,
        kinks: str = "accept",
        **kwargs: Any,
    ) -> dict[str, Result]:
        """Return what a backward may return: {"grad_<name>": Result} for every floating tensor input.

        Args:
            args: the inputs, then the upstream gradient (a tuple of them, in output order, for several outputs).
            profile: arithmetic profile.
            wrt: names of the inputs to differentiate; all floating tensors by default.
            kinks: "accept" any element of the subdifferential interval at a kink, or insist on PyTorch's "convention".
            kwargs: further inputs by name.
        """
        if not args:
            raise UsageError(f"{self.name}.backward needs the inputs and the upstream gradient")
        *inputs, grads = args
        check = Check(self, tracing.bind(self.function, inputs, kwargs), profile=profile, wrt=wrt, kinks=kinks)
        return check.gradients([grads] if grads is None or isinstance(grads, Tensor) else list(grads))

    def jvp(
        self,
        *args: Any,
        tangents: Mapping[str, Tensor],
        profile: str | Profile = "ieee",
        kinks: str = "accept",
        **kwargs: Any,
    ) -> dict[str, Result]:
        """Return what forward mode may return: {"tangent_output": Result} for every floating output.

        tangent_output = sum over X of (d output / d X) tangent_X.

        Args:
            args: the inputs.
            tangents: by input name; an input without one is constant.
            profile: arithmetic profile.
            kinks: as in `backward`.
            kwargs: further inputs by name.
        """
        arguments = tracing.bind(self.function, args, kwargs)
        return Check(self, arguments, profile=profile, wrt=list(tangents), kinks=kinks).tangents(tangents)

    def double_backward(
        self,
        *args: Any,
        profile: str | Profile = "ieee",
        wrt: Sequence[str] | None = None,
        kinks: str = "accept",
        **kwargs: Any,
    ) -> dict[str, Result]:
        """Return what a double backward may return: the gradients of s = sum over X of <vector_X, grad_X>.

        grad_X are the gradients of `backward`, as functions of the inputs and of the upstream gradient.

        Args:
            args: the inputs, the upstream gradient (a tuple for several outputs), and {"grad_X": vector_X}, the
                upstream gradients of second order; a gradient without one is left out of s.
            profile: arithmetic profile.
            wrt: names of the inputs to differentiate by; all floating tensors by default.
            kinks: as in `backward`.
            kwargs: further inputs by name.

        Returns:
            {"grad_X": ds / dX} for every such input, {"grad_grad_output": ds / d(upstream)} for every upstream one.
        """
        if len(args) < 2 or not isinstance(args[-1], Mapping):
            raise UsageError(
                f"{self.name}.double_backward needs the inputs, the upstream gradient and a mapping\n"
                'the mapping has a vector for each first-order gradient that is differentiated: {"grad_A": vector}'
            )
        *inputs, grads, vectors = args
        check = Check(self, tracing.bind(self.function, inputs, kwargs), profile=profile, wrt=wrt, kinks=kinks)
        return check.second_order([grads] if grads is None or isinstance(grads, Tensor) else list(grads), vectors)

    def backward_covers(self, *args: Any, outputs: Any, grads: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Return {"grad_<name>": BoolTensor}: what a correct backward may return that was given these outputs.

        For a fused backward that gets the forward's results (out, logsumexp) from its caller. How far these are from
        the exact outputs is measured, and the declared backward says what that does to the gradients; a correct
        backward is not blamed for its forward, nor excused by more than its forward's error.

        Args:
            args: the inputs, then the upstream gradient of the first output (a tuple for several; None means zero).
            outputs: the forward's results as the backward was given them, in the reference's output order.
            grads: the gradients that the backward returned, one for each floating input, in order.
            kwargs: further inputs by name, and `profile`.

        Raises:
            UsageError: no declared backward, or outputs that no correct forward returns.
        """
        if self.declared is None:
            raise UsageError(f"{self.name or 'this reference'} declares no backward from stored outputs; use .backward")
        *inputs, grad = args
        profile = kwargs.pop("profile", "ieee")
        stored = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        forward = self if self.keeps is None or len(stored) == 1 else dataclasses.replace(self, function=self.keeps)
        check = Check(forward, tracing.bind(self.function, inputs, kwargs), profile=profile)
        upstream = [grad] if grad is None or isinstance(grad, Tensor) else list(grad)
        upstream += [None] * (len(check.cotangents) - len(upstream))
        results = check.given_outputs(upstream, stored)
        if len(grads) != len(results):
            raise UsageError(f"expected {len(results)} gradients ({', '.join(results)}), got {len(grads)}")
        return {name: result.covers(actual) for (name, result), actual in zip(results.items(), grads, strict=True)}


def reference(
    function: Callable[..., Any] | Reference,
    *,
    backward: Callable[..., Any] | None = None,
    surrogate: bool = False,
    name: str = "",
) -> Reference:
    """Return a reference made of any PyTorch function.

    Args:
        function: plain PyTorch; its dtypes say with what precision the result is to be computed.
        backward: a declared backward, see `Reference.declared`.
        surrogate: the declared backward is not the derivative, on purpose.
        name: for reports; the function's own by default.
    """
    if isinstance(function, Reference):
        if backward is None and not surrogate:
            return function
        return dataclasses.replace(function, declared=backward, surrogate=surrogate)
    if not callable(function):
        raise UsageError(f"a reference is a function, got {type(function).__name__}")
    return Reference(plain_function(function), name or title_of(function), backward, surrogate)


class Check:
    """One reference at fixed inputs: its programs, traced once, and what they admit."""

    def __init__(
        self,
        reference: Reference,
        arguments: Mapping[str, Any],
        *,
        profile: str | Profile = "ieee",
        wrt: Sequence[str] | None = None,
        kinks: str = "accept",
        budget: Budget | None = None,
    ) -> None:
        """Bind the reference to arguments by name.

        Raises:
            UsageError: an unknown profile, kink mode or input name.
        """
        self.reference, self.arguments = reference, arguments
        self.tensors = tracing.named_tensors(arguments)
        for name, tensor in self.tensors.items():
            if tensor.is_complex() or tensor.is_meta:
                kind = f"{str(tensor.dtype).removeprefix('torch.')} tensors" if tensor.is_complex() else "meta tensors"
                raise UsageError(
                    f"{name}: {kind} are not supported\ngive floating, integer or boolean tensors with values"
                )
        self.profile = profile if isinstance(profile, Profile) else _profile(profile)
        if kinks not in ("accept", "convention"):
            raise UsageError(f'kinks: expected "accept" or "convention", got {kinks!r}')
        self.kinks, self.budget = kinks, budget or Budget()
        self.wrt = self._differentiated(wrt)
        self.declared_program: Program | None = None  # of the declared backward, once it was traced

    def _differentiated(self, wrt: Sequence[str] | None) -> list[str]:
        floating = [name for name, t in self.tensors.items() if t.is_floating_point()]
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

    @property
    def cotangents(self) -> dict[str, Meta]:
        """Shape and dtype of the upstream gradient of each floating output, by output name."""
        return {n: m for n, m in self.forward.output_metas.items() if m.dtype.is_floating_point}

    @property
    def device(self) -> torch.device:
        """Device of the inputs, the CPU where there is none."""
        return next((t.device for t in self.tensors.values()), torch.device("cpu"))

    def outputs(self) -> dict[str, Result]:
        """Return the results of the forward alone."""
        return self._results(self.forward, self.tensors, list(self.forward.outputs))

    def gradients(self, grads: Sequence[Tensor | None]) -> dict[str, Result]:
        """Return the gradients for these upstream gradients (None means zero)."""
        return {n: r for n, r in self.both(grads).items() if n.startswith("grad_")}

    def both(self, grads: Sequence[Tensor | None]) -> dict[str, Result]:
        """Return the results of outputs and gradients from one evaluation."""
        if not self.wrt:
            return self.outputs()
        inputs: dict[str, Tensor | Enclosure] = {**self.tensors, **self.upstream(grads)}
        results = self._results(self.joint, inputs, list(self.joint.outputs))
        if self.reference.declared is not None:
            stored = {name: results[name].enclosure for name in self.forward.outputs}
            results.update(self._declared(results, inputs, stored))
        return results

    def tangents(self, tangents: Mapping[str, Tensor]) -> dict[str, Result]:
        """Return the tangents of the outputs for these tangents of inputs, by name; all of `wrt` must have one."""
        self._require_true_derivative()
        given = self._as_inputs(tangents, {n: n for n in self.tensors if self.tensors[n].is_floating_point()},
                            derivatives.tangent_name)  # fmt: skip
        with _named(self.reference.name):
            program = derivatives.trace_jvp(self.reference.function, self.arguments, self.wrt, self.forward)
        return self._results(program, {**self.tensors, **given}, list(program.outputs))

    def second_order(self, grads: Sequence[Tensor | None], vectors: Mapping[str, Tensor]) -> dict[str, Result]:
        """Return the gradients of sum <vector, gradient> over the first-order gradients that have a vector, by name."""
        self._require_true_derivative()
        given = self._as_inputs(vectors, {f"grad_{n}": n for n in self.wrt}, tracing.cotangent_name)
        names = [name for name in self.wrt if f"grad_{name}" in vectors]
        with _named(self.reference.name):
            program = derivatives.trace_double_backward(
                self.reference.function, self.arguments, self.wrt, names, self.forward
            )
        inputs = {**self.tensors, **self.upstream(grads), **given}
        return self._results(program, inputs, list(program.outputs))

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
        return found

    def given_outputs(self, grads: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> dict[str, Result]:
        """Return the gradients for a backward that is given these outputs of its forward."""
        inputs: dict[str, Tensor | Enclosure] = {**self.tensors, **self.upstream(grads)}
        results = self._results(self.joint, inputs, list(self.joint.outputs))
        names = list(self.forward.outputs)
        if len(outputs) != len(names):
            raise UsageError(f"expected {len(names)} outputs ({', '.join(names)}), got {len(outputs)}")
        stored = {name: _as_given(results[name], actual) for name, actual in zip(names, outputs, strict=True)}
        return self._declared(results, inputs, stored)

    def upstream(self, grads: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """Return the upstream gradients by input name of the program; None means zero."""
        expected = self.cotangents
        if len(grads) != len(expected):
            raise UsageError(f"expected {len(expected)} upstream gradients, one per floating output, got {len(grads)}")
        given = {}
        for (name, meta), grad in zip(expected.items(), grads, strict=True):
            grad = torch.zeros(meta.shape, dtype=meta.dtype, device=self.device) if grad is None else grad
            given[tracing.cotangent_name(name)] = require_same_form(
                grad, meta.shape, meta.dtype, tracing.cotangent_name(name)
            ).detach()
        return given

    def _results(
        self, program: Program, inputs: Mapping[str, Tensor | Enclosure], names: list[str]
    ) -> dict[str, Result]:
        try:
            filtered = run_filter(program, inputs, self.profile)
        except Exception:
            tracing.require_callable(self.reference.function, self.arguments)
            raise
        at_kinks = (
            run_filter(program, inputs, self.profile, kinks=True, rad=False) if self._has_kinks(filtered) else None
        )
        plain = FlatInputs({name: v.mid if isinstance(v, Enclosure) else v for name, v in inputs.items()})
        return {name: self._result(name, program, filtered, at_kinks, plain) for name in names}

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
        if own in self.tensors:
            return Meta(tuple(self.tensors[own].shape), self.tensors[own].dtype)
        return self.cotangents[own.removeprefix("grad_").removeprefix("tangent_")]

    def _declared(
        self, traced: Mapping[str, Result], inputs: Mapping[str, Tensor | Enclosure], stored: Mapping[str, Enclosure]
    ) -> dict[str, Result]:
        """Return the gradients with the bound of the declared backward, run on the enclosures of the stored outputs."""
        like = [torch.zeros(traced[name].meta.shape, dtype=traced[name].meta.dtype) for name in stored]
        upstream = [value for name, value in inputs.items() if name not in self.tensors]
        program = self._trace_declared(like, upstream, list(stored))
        self.declared_program = program
        given = {**inputs, **stored}
        filtered = run_filter(program, {name: given[name] for name in program.inputs}, self.profile)
        found = {}
        for label in program.outputs:
            result, meta = traced[label], program.output_metas.get(label)
            if meta is None or meta != result.meta:
                raise TraceError(f"the declared backward returned {meta} for {label}, expected {result.meta}")
            found[label] = self._merged(result, filtered, label)
        return found

    def _trace_declared(self, like: list[Tensor], upstream: list[Any], labels: list[str]) -> Program:
        if self.reference.declared is None:
            raise InvariantError("no declared backward")
        return derivatives.trace_declared(
            self.reference.declared, self.reference.function, self.arguments, like, upstream, self.wrt, labels
        )

    def _merged(self, traced: Result, filtered: Filtered, name: str) -> Result:
        declared, rad = filtered.enclosures[name], filtered.rads[name]
        if self.reference.surrogate:
            return dataclasses.replace(traced, enclosure=declared, rad=rad, source=None, kinks=None)
        _require_agreement(traced, declared, rad, name)
        bound = declared.bound_or_zero().expand(declared.shape)
        return dataclasses.replace(traced, enclosure=Enclosure(traced.enclosure.mid, bound), rad=traced.rad_abs())


def _as_given(result: Result, actual: Tensor) -> Enclosure:
    """Return the enclosure of a stored output: around the exact value, as wide as the stored one is off.

    Raises:
        UsageError: no correct forward returns it.
    """
    count = int((~result.covers(actual)).sum())
    if count:
        raise UsageError(
            f"{result.name}: {count} elements are not what a correct forward may return\ncheck the forward first"
        )
    error = (actual.detach().to(result.enclosure.mid) - result.enclosure.mid).abs()
    error = torch.where(actual == result.enclosure.mid, 0.0, error) * (1 + 2.0**-50)
    return Enclosure(result.enclosure.mid, error + result.rad_abs())


def _require_agreement(traced: Result, declared: Enclosure, rad: Tensor | float, name: str) -> None:
    """Refuse a declared backward whose exact value is not the derivative: the midpoints differ by more than both rads.

    The midpoint of a stored output is float64's, off by at most its own rad, and the declared program moves that by no
    more than it moves the output's bound; hence a fraction of the declared bound on top.
    """
    gap = (traced.enclosure.mid - declared.mid).abs()
    own = traced.rad_abs()
    theirs = rad if isinstance(rad, Tensor) else rad * declared.bound_or_zero()
    worst = gap > (own + theirs + 2.0**-26 * declared.bound_or_zero() + 2.0**-50 * declared.mid.abs()) * 2
    if bool(worst.any()):
        index = tuple(int(i) for i in torch.nonzero(worst)[0])
        raise TraceError(
            f"the declared backward is not the derivative of the reference: {name}{list(index)} is "
            f"{float(declared.mid[index])!r}, the derivative {float(traced.enclosure.mid[index])!r}\n"
            "mend it, or declare it as a surrogate where it is meant to differ"
        )


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Let an error of tracing say which reference it means."""
    try:
        yield
    except UnsupportedOperation:
        raise
    except TraceError as error:
        raise TraceError(str(error).replace("the reference ", f"the reference {name} ", 1)) from error


def _profile(name: str) -> Profile:
    if name not in PROFILES:
        raise UsageError(f"no profile {name!r}{nearest(name, PROFILES)}\nknown: {', '.join(PROFILES)}")
    return PROFILES[name]
