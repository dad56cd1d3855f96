"""Run a kernel forward and backward, decide every element, and report.

Three ways to ask for it:

    verify(function, inputs, reference=...)     for the command line: inputs by name, reference optional
    check(function, args, reference=...)        the same for a notebook
    assert_covered(function, args, ...)         raises with the full report
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernels_core import battery as contract
from kernels_core.audit.rows import audited
from kernels_core.diagnosis import Setting
from kernels_core.errors import NotCovered, TraceError, UnsupportedOperation, UsageError
from kernels_core.kernel.call import KernelRaisedError, draw_upstream, phase, rerun, run_kernel
from kernels_core.kernel.callee import call as call_kernel
from kernels_core.kernel.callee import declared_by, same_memory, title_of
from kernels_core.kernel.modules import as_kernel
from kernels_core.preparation import prepared, reference_of, with_parameters
from kernels_core.profiles.knobs import Given
from kernels_core.reference import Check, Result
from kernels_core.report import (
    Arithmetic,
    BatteryRow,
    Consistency,
    InputReport,
    Raised,
    Report,
    TensorReport,
    Verdict,
    summary,
)
from kernels_core.rows import rows_of
from kernels_core.tracing import trace as tracing
from kernels_core.tracing.complex_parts import differentiable, returned_apart
from kernels_core.weakest.rows import consistent

__all__ = ["assert_covered", "check", "prepared", "summary", "verify", "with_parameters"]

Tensor = torch.Tensor


def verify(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    *,
    reference: Callable[..., Any] | None = None,
    reference_backward: Callable[..., Any] | None = None,
    surrogate: bool = False,
    grads: Sequence[Tensor] | None = None,
    wrt: Sequence[str] | None = None,
    seed: int = 0,
    profile: Given | None = None,
    bound: str | None = None,
    kinks: str = "accept",
    name: str = "",
    battery: str | Sequence[str] = "none",
    settings: contract.Settings | None = None,
    audit: bool = True,
    diagnose: bool = True,
) -> Report:
    """Verify outputs and gradients of a kernel on these inputs.

    Args:
        function: the kernel: a Function class, a callable or a module.
        inputs: by name, in argument order.
        reference: a Reference or plain function; None takes the Function's own forward.
        reference_backward: a declared backward, see `Reference.declared`.
        surrogate: the declared backward is not the derivative, on purpose.
        grads: upstream gradients, one per floating output; drawn from the seed when None.
        wrt: names of the inputs to differentiate; all floating tensors by default.
        seed: of the upstream gradients, for the report.
        profile: arithmetic profile, with knobs where wanted; the reference's own, or PyTorch's, if none.
        bound: "worst-case" or "probabilistic".
        kinks: "accept" or "convention".
        name: of the case.
        battery: "all", "none" or names of items of the contract battery.
        settings: of the battery; by default families of values are drawn within the range of the given ones.
        audit: say what a pass shows: the sensitivity, and the precision audit, which can make a covered tensor suspect.
        diagnose: say more of a violation than its values show: hypotheses that need the reference, and the line; with
            `audit`, the arithmetic that would cover it.

    Raises:
        ExactRefError: a mistake of the caller (an untraceable reference, a wrong shape); never a fault of the kernel.
    """
    start, clock, items = time.monotonic(), time.process_time(), contract.select(battery)
    function, inputs, wrt = with_parameters(function, inputs, wrt, reference)
    check = prepared(function, inputs, reference=reference, reference_backward=reference_backward, surrogate=surrogate,
                     wrt=wrt, profile=profile, bound=bound, kinks=kinks)  # fmt: skip
    rows: list[TensorReport] = []
    raised: Raised | None = None
    notes: tuple[str, ...] = ()
    likely: tuple[Consistency, ...] = ()
    tested: tuple[BatteryRow, ...] = ()
    try:
        _trace(function, inputs, check, own=reference is None)
        call = _call(function, inputs, check, list(grads) if grads is not None else draw_upstream(check, seed))
        notes = call.notes
        rows = _decided(call, audit, diagnose)
        likely = (
            consistent(rows, check, call.results, call.returned, call.differentiated, call.cost) if diagnose else ()
        )
        if items and call.gradients is not None:
            chosen = dataclasses.replace(settings or contract.Settings(ranged=True), insist=_asks_for_a_family(battery))
            tested = contract.run(_subject(call, rows, chosen, seed, kinks), items, time.process_time() - clock)
    except KernelRaisedError as error:
        raised = error.raised
    return Report(
        name=name or title_of(function), function=title_of(function), reference=check.reference.name,
        inputs=tuple(_inputs(check)), tensors=tuple(rows), raised=raised, seed=seed,
        profile=check.profile.title, arithmetic=_arithmetic(check), device=str(check.device),
        seconds=time.monotonic() - start, notes=notes, battery=tested, consistent=likely,
    )  # fmt: skip


@dataclasses.dataclass
class _Call:
    """One call of a kernel: what it was given, what it returned (gradients None where none were asked for)."""

    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    check: Check
    upstream: list[Tensor]
    outputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None] | None
    notes: tuple[str, ...]
    results: Mapping[str, Result] = dataclasses.field(default_factory=dict)
    returned: Mapping[str, Tensor | None] = dataclasses.field(default_factory=dict)
    cost: float = 0.0  # CPU time of what gave the results

    @property
    def differentiated(self) -> list[Tensor] | None:
        """The upstream gradients, None where no gradients were asked for."""
        return None if self.gradients is None else self.upstream


def _call(function: Callable[..., Any], inputs: Mapping[str, Any], check: Check, upstream: list[Tensor]) -> _Call:
    """Call the kernel; the upstream gradient of what it declares constant counts as zero."""
    with declared_by("mark_non_differentiable") as marked:
        outputs, gradients = run_kernel(function, inputs, check.arguments, check, upstream)
    cut = _declared_constant(outputs, marked, check)
    upstream = [g * 0 if n in cut else g for n, g in zip(check.cotangents, upstream, strict=False)]
    notes = tuple(f"{name} is marked non-differentiable: its upstream gradient counts as zero" for name in cut)
    if not check.cotangents and any(differentiable(t.dtype) for t in check.tensors.values()):
        notes += ("no gradients: no output is floating",)
    if gradients is None:
        notes += ("gradients not checked: an output has another shape",)
    return _Call(function, inputs, check, upstream, outputs, gradients, notes)


def _decided(call: _Call, audit: bool, diagnose: bool) -> list[TensorReport]:
    """Return the rows of all outputs and gradients."""
    check, clock = call.check, time.process_time()
    call.results = results = check.outputs() if call.gradients is None else check.both(call.upstream)
    outputs, gradients = returned_apart(call.outputs, results), returned_apart(call.gradients or {}, results)
    call.returned, call.cost = {**outputs, **gradients}, time.process_time() - clock
    again = functools.partial(rerun, call.function, call.inputs, check, call.upstream)
    setting = Setting(check, call.upstream, results, call.returned, again, call.function, call.cost)
    rows = rows_of(results, outputs, gradients, setting if diagnose and not check.has_complex else None)
    return audited(rows, check, call.upstream, results, call.returned) if audit else rows


def _subject(
    call: _Call, rows: Sequence[TensorReport], settings: contract.Settings, seed: int, kinks: str
) -> contract.Subject:
    """Return what the battery tests: the call, and how to verify the kernel at other inputs."""
    check = call.check

    def again(inputs: Mapping[str, Any], function: Callable[..., Any] = call.function, **options: Any) -> Report:
        known = {"reference": check.reference, "seed": seed, "profile": check.profile, "kinks": kinks, "audit": False}
        return verify(function, inputs, **{**known, **options})

    violated = frozenset(row.name for row in rows if row.verdict is Verdict.VIOLATED)
    return contract.Subject(
        call.function, call.inputs, check.arguments, check, tuple(call.upstream), call.results, call.outputs,
        call.gradients or {}, violated, again, settings,
    )  # fmt: skip


Args = Sequence[Any] | Mapping[str, Any]


def check(
    function: Callable[..., Any], args: Args, *, reference: Callable[..., Any] | None = None, **options: Any
) -> Report:
    """Verify a kernel on positional arguments, or on arguments by name; options as in `verify`.

    Raises:
        UsageError: the arguments are neither.
    """
    kernel = as_kernel(function)
    ref = reference_of(kernel, reference, None, False)
    if isinstance(args, Mapping):
        return verify(kernel, tracing.bind(ref.function, (), args), reference=ref, **options)
    if not isinstance(args, (list, tuple)):
        raise UsageError(f"args: expected a list, a tuple or a mapping of arguments, got {type(args).__name__}")
    return verify(kernel, tracing.bind(ref.function, args, {}), reference=ref, **options)


def assert_covered(
    function: Callable[..., Any], args: Args, *, reference: Callable[..., Any] | None = None, **options: Any
) -> None:
    """Raise NotCovered with the full report unless every element of every output and gradient is covered."""
    __tracebackhide__ = True
    report = check(function, args, reference=reference, **options)
    if not report:
        raise NotCovered(summary(report))


def _asks_for_a_family(battery: str | Sequence[str]) -> bool:
    return any(name.startswith("values_") for name in ([battery] if isinstance(battery, str) else battery))


def _trace(function: Callable[..., Any], inputs: Mapping[str, Any], check: Check, own: bool) -> None:
    """Trace the forward; a kernel that is its own reference and raises by itself too is a kernel that raised."""
    try:
        _ = check.forward
    except UnsupportedOperation:
        raise
    except TraceError:
        if own:
            leaves = {n: t.detach().clone() for n, t in check.tensors.items()}
            with torch.random.fork_rng(devices=[]), phase("forward"):
                call_kernel(function, inputs, tracing.with_tensors(check.arguments, leaves))
        raise


def _declared_constant(outputs: Mapping[str, Tensor], marked: Sequence[Tensor], check: Check) -> list[str]:
    """Return the floating outputs that the kernel declares non-differentiable; none where that would be all of them."""
    floating = [name for name in check.cotangents if name in outputs]
    found = [name for name in floating if any(same_memory(outputs[name], t) for t in marked)]
    return found if len(found) < len(floating) else []


def _arithmetic(check: Check) -> Arithmetic:
    profile = check.profile
    knobs = {knob: dict(value) if isinstance(value, Mapping) else value for knob, value in profile.knobs.items()}
    return Arithmetic(
        profile.name, knobs, profile.reason, profile.bound, check.failure if profile.probabilistic else None
    )


def _inputs(check: Check) -> Iterator[InputReport]:
    for name, value in check.arguments.items():
        for path, leaf in pytree.tree_flatten_with_path(value, is_leaf=lambda x: x is None)[0]:
            label = name + pytree.keystr(path)
            if isinstance(leaf, Tensor):
                yield InputReport(label, f"{str(leaf.dtype)[6:]}{list(leaf.shape)}", label in check.asked)
            else:
                yield InputReport(label, repr(leaf)[:80], False)
