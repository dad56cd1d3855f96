"""A reference: a plain PyTorch function that says what is to be computed, and what a kernel may return for it.

reference(A, B)                   -> Result, or a tuple of Results for several outputs
reference.backward(A, B, grad)    -> {"grad_A": Result, "grad_B": Result}
reference.jvp(A, B, tangents={"A": tangent})                -> {"tangent_output": Result}
reference.double_backward(A, B, grad, {"grad_A": vector})   -> the same names, and {"grad_grad_output": Result}
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels_core.check import Check
from kernels_core.errors import UsageError, nearest
from kernels_core.kernel.callee import plain_function, title_of
from kernels_core.profiles import AUTO
from kernels_core.profiles.knobs import WORST_CASE, Given
from kernels_core.result import ComplexResult, Result
from kernels_core.tracing import trace as tracing

__all__ = ["Check", "ComplexResult", "Reference", "Result", "reference"]

Tensor = torch.Tensor


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
        profile: what arithmetic kernels may use where a call does not say.
        bound: "worst-case" or "probabilistic".
    """

    function: Callable[..., Any]
    name: str = ""
    declared: Callable[..., Any] | None = None
    surrogate: bool = False
    keeps: Callable[..., Any] | None = None
    algorithms: Mapping[str, Reference] = dataclasses.field(default_factory=dict)
    profile: Given = AUTO
    bound: str = WORST_CASE

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
        results = tuple(check.whole(check.outputs()).values())
        return results[0] if len(results) == 1 else results

    def backward(
        self,
        *args: Any,
        profile: Given | None = None,
        wrt: Sequence[str] | None = None,
        kinks: str = "accept",
        **kwargs: Any,
    ) -> dict[str, Result | ComplexResult]:
        """Return what a backward may return: {"grad_<name>": Result} for every floating tensor input.

        Args:
            args: the inputs, then the upstream gradient (a tuple of them, in output order, for several outputs).
            profile: arithmetic profile, with knobs where wanted (profiles/knobs.py); the reference's own by default.
            wrt: names of the inputs to differentiate; all floating tensors by default.
            kinks: "accept" any element of the subdifferential interval at a kink, or insist on PyTorch's "convention".
            kwargs: further inputs by name.
        """
        if not args:
            raise UsageError(f"{self.name}.backward needs the inputs and the upstream gradient")
        *inputs, grads = args
        check = Check(self, tracing.bind(self.function, inputs, kwargs), profile=profile, wrt=wrt, kinks=kinks)
        return check.whole(check.gradients([grads] if grads is None or isinstance(grads, Tensor) else list(grads)))

    def jvp(
        self,
        *args: Any,
        tangents: Mapping[str, Tensor],
        profile: Given | None = None,
        kinks: str = "accept",
        **kwargs: Any,
    ) -> dict[str, Result | ComplexResult]:
        """Return what forward mode may return: {"tangent_output": Result} for every floating output.

        tangent_output = sum over X of (d output / d X) tangent_X.

        Args:
            args: the inputs.
            tangents: by input name; an input without one is constant.
            profile: arithmetic profile, with knobs where wanted (profiles/knobs.py); the reference's own by default.
            kinks: as in `backward`.
            kwargs: further inputs by name.
        """
        arguments = tracing.bind(self.function, args, kwargs)
        check = Check(self, arguments, profile=profile, wrt=list(tangents), kinks=kinks)
        return check.whole(check.tangents(tangents))

    def double_backward(
        self,
        *args: Any,
        profile: Given | None = None,
        wrt: Sequence[str] | None = None,
        kinks: str = "accept",
        **kwargs: Any,
    ) -> dict[str, Result | ComplexResult]:
        """Return what a double backward may return: the gradients of s = sum over X of <vector_X, grad_X>.

        grad_X are the gradients of `backward`, as functions of the inputs and of the upstream gradient.

        Args:
            args: the inputs, the upstream gradient (a tuple for several outputs), and {"grad_X": vector_X}, the
                upstream gradients of second order; a gradient without one is left out of s.
            profile: arithmetic profile, with knobs where wanted (profiles/knobs.py); the reference's own by default.
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
        upstream = [grads] if grads is None or isinstance(grads, Tensor) else list(grads)
        return check.whole(check.second_order(upstream, vectors))

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
        profile = kwargs.pop("profile", None)
        stored = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        forward = self if self.keeps is None or len(stored) == 1 else dataclasses.replace(self, function=self.keeps)
        check = Check(forward, tracing.bind(self.function, inputs, kwargs), profile=profile)
        upstream = [grad] if grad is None or isinstance(grad, Tensor) else list(grad)
        upstream += [None] * (len(check.cotangents) - len(upstream))
        results = check.whole(check.given_outputs(upstream, stored))
        if len(grads) != len(results):
            raise UsageError(f"expected {len(results)} gradients ({', '.join(results)}), got {len(grads)}")
        return {name: result.covers(actual) for (name, result), actual in zip(results.items(), grads, strict=True)}


def reference(
    function: Callable[..., Any] | Reference,
    *,
    backward: Callable[..., Any] | None = None,
    surrogate: bool = False,
    name: str = "",
    profile: Given | None = None,
    bound: str | None = None,
) -> Reference:
    """Return a reference made of any PyTorch function.

    Args:
        function: plain PyTorch; its dtypes say with what precision the result is to be computed.
        backward: a declared backward, see `Reference.declared`.
        surrogate: the declared backward is not the derivative, on purpose.
        name: for reports; the function's own by default.
        profile: what arithmetic kernels may use: a name, "name,knob=value,..." or a mapping; PyTorch's own if none.
        bound: "worst-case" or "probabilistic".
    """
    changes: dict[str, Any] = {} if profile is None else {"profile": profile}
    changes |= {} if bound is None else {"bound": bound}
    if isinstance(function, Reference):
        if backward is not None or surrogate:
            changes |= {"declared": backward, "surrogate": surrogate}
        return dataclasses.replace(function, **changes) if changes else function
    if not callable(function):
        raise UsageError(f"a reference is a function, got {type(function).__name__}")
    return Reference(plain_function(function), name or title_of(function), backward, surrogate, **changes)
