"""Run a kernel forward and backward, decide every element, and report.

Three ways to ask for it:

    verify(function, inputs, reference=...)     for the command line: inputs by name, reference optional
    check(function, args, reference=...)        the same for a notebook
    assert_covered(function, args, ...)         raises with the full report
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
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
from kernels_core.kernel.callee import call, in_order, non_differentiable_outputs, plain_function, same_memory, title_of
from kernels_core.kernel.modules import ModuleKernel, as_kernel, ignores_parameters, reference_for
from kernels_core.profiles.knobs import Given
from kernels_core.reference import Check, Reference, Result, reference
from kernels_core.report import Arithmetic, BatteryRow, InputReport, Raised, Report, TensorReport, Verdict
from kernels_core.rows import mismatch_row, row
from kernels_core.tracing import trace as tracing
from kernels_core.tracing.complex_parts import differentiable, returned_apart

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
        diagnose: say more of a violation than its values show: hypotheses that need the reference, and the line.

    Raises:
        ExactRefError: a mistake of the caller (an untraceable reference, a wrong shape); never a fault of the kernel.
    """
    start, items = time.monotonic(), contract.select(battery)
    function, inputs, wrt = with_parameters(function, inputs, wrt, reference)
    check = prepared(function, inputs, reference=reference, reference_backward=reference_backward, surrogate=surrogate,
                     wrt=wrt, profile=profile, bound=bound, kinks=kinks)  # fmt: skip
    ref, arguments = check.reference, check.arguments
    rows: list[TensorReport] = []
    raised: Raised | None = None
    notes: tuple[str, ...] = ()
    tested: tuple[BatteryRow, ...] = ()
    try:
        _trace(function, inputs, check, own=reference is None)
        upstream = list(grads) if grads is not None else draw_upstream(check, seed)
        with non_differentiable_outputs() as marked:
            outputs, gradients = run_kernel(function, inputs, arguments, check, upstream)
        cut = _declared_constant(outputs, marked, check)
        upstream = [g * 0 if n in cut else g for n, g in zip(check.cotangents, upstream, strict=False)]
        notes = tuple(f"{name} is marked non-differentiable: its upstream gradient counts as zero" for name in cut)
        clock = time.process_time()
        results = check.outputs() if gradients is None else check.both(upstream)
        given, received = returned_apart(outputs, results), returned_apart(gradients or {}, results)
        returned = {**given, **received}
        setting = Setting(check, upstream, results, returned,
                          functools.partial(rerun, function, inputs, check, upstream), function,
                          time.process_time() - clock)  # fmt: skip
        rows = _rows(results, given, received, setting if diagnose and not check.has_complex else None)
        if audit:
            rows = audited(rows, check, upstream, results, returned)
        if gradients is None:
            notes += ("gradients not checked: an output has another shape",)
        elif items:
            again = functools.partial(verify, function, reference=ref, seed=seed, profile=check.profile, kinks=kinks,
                                      audit=False)  # fmt: skip
            subject = contract.Subject(
                function, inputs, arguments, check, tuple(upstream), results, outputs, gradients,
                frozenset(row.name for row in rows if row.verdict is Verdict.VIOLATED), again,
                dataclasses.replace(settings or contract.Settings(ranged=True), insist=_asks_for_a_family(battery)),
            )  # fmt: skip
            tested = contract.run(subject, items, time.monotonic() - start)
    except KernelRaisedError as error:
        raised = error.raised
    return Report(
        name=name or title_of(function), function=title_of(function), reference=ref.name,
        inputs=tuple(_inputs(arguments, check)), tensors=tuple(rows), raised=raised, seed=seed,
        profile=check.profile.title, arithmetic=_arithmetic(check), device=str(check.device),
        seconds=time.monotonic() - start, notes=notes, battery=tested,
    )  # fmt: skip


def prepared(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    *,
    reference: Callable[..., Any] | None = None,
    reference_backward: Callable[..., Any] | None = None,
    surrogate: bool = False,
    wrt: Sequence[str] | None = None,
    profile: Given | None = None,
    bound: str | None = None,
    kinks: str = "accept",
) -> Check:
    """Return the reference at the inputs of a kernel; arguments as in `verify`."""
    function, inputs, wrt = with_parameters(function, inputs, wrt, reference)
    ref = _reference(function, reference, reference_backward, surrogate)
    return Check(ref, _fit(function, ref, inputs), profile=profile, bound=bound, wrt=wrt, kinks=kinks)


def check(
    function: Callable[..., Any], args: Sequence[Any], *, reference: Callable[..., Any] | None = None, **options: Any
) -> Report:
    """Verify a kernel on positional arguments; options as in `verify`."""
    kernel = as_kernel(function)
    ref = _reference(kernel, reference, None, False)
    return verify(kernel, tracing.bind(ref.function, list(args), {}), reference=ref, **options)


def assert_covered(
    function: Callable[..., Any], args: Sequence[Any], *, reference: Callable[..., Any] | None = None, **options: Any
) -> None:
    """Raise NotCovered with the full report unless every element of every output and gradient is covered."""
    __tracebackhide__ = True
    report = check(function, args, reference=reference, **options)
    if not report:
        raise NotCovered(summary(report))


def summary(report: Report) -> str:
    """Return the report as plain lines."""
    lines = [f"{report.name}: {report.verdict} (seed {report.seed}, {report.granted})"]
    if report.raised is not None:
        lines += [f"{report.raised.phase} raised: {report.raised.message}", report.raised.frames]
    for found in report.tensors:
        lines.append(
            f"  {found.name} {found.dtype}{list(found.shape)}: {found.covered} of {found.elements} covered, "
            f"{found.violated} violated, {found.undecided} undecided, {found.unconstrained} unconstrained"
        )
        if found.failure is not None:
            lines += [f"    {line}" for line in (found.failure.pattern, *found.failure.diagnosis)]
            for e in found.failure.elements[:3]:
                admissible = f"[{e.lower!r}, {e.upper!r}]"
                lines.append(f"    {list(e.index)}: got {e.actual!r}, admissible {admissible}, exact {e.exact!r}")
        if found.note:
            lines.append(f"    {found.note}")
    lines += [f"  battery {row.name}: {row.outcome}: {row.evidence}" for row in report.battery]
    return "\n".join(lines)


def _reference(
    function: Callable[..., Any],
    given: Callable[..., Any] | None,
    backward: Callable[..., Any] | None,
    surrogate: bool,
) -> Reference:
    if given is not None:
        return reference(reference_for(function, given), backward=backward, surrogate=surrogate)
    own, name = plain_function(function), title_of(function)
    return reference(own, backward=backward, surrogate=surrogate, name=name if own is function else f"{name}.forward")


def _asks_for_a_family(battery: str | Sequence[str]) -> bool:
    return any(name.startswith("values_") for name in ([battery] if isinstance(battery, str) else battery))


def with_parameters(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    wrt: Sequence[str] | None,
    reference: Callable[..., Any] | None,
) -> tuple[Callable[..., Any], Mapping[str, Any], Sequence[str] | None]:
    """Return the kernel, its inputs and what is differentiated, the parameters of a module among them."""
    kernel = as_kernel(function)
    if not isinstance(kernel, ModuleKernel):
        return function, inputs, wrt
    if ignores_parameters(kernel, reference):
        return kernel.module, {name: value for name, value in inputs.items() if name not in kernel.arguments}, wrt
    complete = {**inputs, **{name: value for name, value in kernel.values().items() if name not in inputs}}
    if wrt is None and kernel.frozen():
        floating = [name for name, t in tracing.named_tensors(complete).items() if differentiable(t.dtype)]
        wrt = [name for name in floating if name not in kernel.frozen()]
    return kernel, complete, wrt


def _fit(function: Callable[..., Any], ref: Reference, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs under the reference's parameter names: matched by name where all fit, else by position."""
    parameters = ref.signature.parameters
    if not all(name in parameters for name in inputs):
        return tracing.bind(ref.function, in_order(function, inputs), {})
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in variadic]
    missing = [name for name in required if name not in inputs]
    if missing:
        raise UsageError(f"no input is given for {', '.join(missing)} of {ref.name}{_signature(ref)}\n"
                         f"given: {', '.join(inputs) or 'none'}")  # fmt: skip
    return dict(inputs)


def _signature(ref: Reference) -> str:
    return f"({', '.join(ref.signature.parameters)})"


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
                call(function, inputs, tracing.with_tensors(check.arguments, leaves))
        raise


def _declared_constant(outputs: Mapping[str, Tensor], marked: Sequence[Tensor], check: Check) -> list[str]:
    """Return the floating outputs that the kernel declares non-differentiable; none where that would be all of them."""
    floating = [name for name in check.cotangents if name in outputs]
    found = [name for name in floating if any(same_memory(outputs[name], t) for t in marked)]
    return found if len(found) < len(floating) else []


def _rows(
    results: Mapping[str, Result],
    outputs: Mapping[str, Tensor | None],
    gradients: Mapping[str, Tensor | None],
    setting: Setting | None,
) -> list[TensorReport]:
    extra = [name for name in outputs if name not in results and f"{name}.real" not in results]
    if extra:
        wanted = ", ".join(name for name in results if not name.startswith("grad_"))
        raise UsageError(f"the kernel returned {', '.join(outputs)}; the reference has {wanted}\n"
                         "let both return the same outputs")  # fmt: skip
    return [_row_of(result, name, outputs, gradients, setting) for name, result in results.items()]


def _row_of(
    result: Result,
    name: str,
    outputs: Mapping[str, Tensor | None],
    gradients: Mapping[str, Tensor | None],
    setting: Setting | None,
) -> TensorReport:
    kind = "gradient" if name.startswith("grad_") else "output"
    actual, note = gradients.get(name) if kind == "gradient" else outputs.get(name), ""
    if actual is None and kind == "gradient":
        actual = torch.zeros(result.meta.shape, dtype=result.meta.dtype, device=result.enclosure.mid.device)
        note = "the backward returned None, which means zero"
    try:
        if (whole := outputs.get(name.rpartition(".")[0])) is not None and actual is None:
            raise UsageError(f"expected the parts of a complex tensor, got {str(whole.dtype)[6:]}")
        if actual is None:
            raise UsageError(f"the kernel returned no such output; it returned {', '.join(outputs)}")
        return row(result, actual, kind, note, setting)
    except UsageError as error:
        return mismatch_row(result, kind, str(error).splitlines()[0].removeprefix(f"{name}: "))


def _arithmetic(check: Check) -> Arithmetic:
    profile = check.profile
    knobs = {knob: dict(value) if isinstance(value, Mapping) else value for knob, value in profile.knobs.items()}
    return Arithmetic(
        profile.name, knobs, profile.reason, profile.bound, check.failure if profile.probabilistic else None
    )


def _inputs(arguments: Mapping[str, Any], check: Check) -> Iterator[InputReport]:
    for name, value in arguments.items():
        for path, leaf in pytree.tree_flatten_with_path(value, is_leaf=lambda x: x is None)[0]:
            label = name + pytree.keystr(path)
            if isinstance(leaf, Tensor):
                yield InputReport(label, f"{str(leaf.dtype)[6:]}{list(leaf.shape)}", label in check.wrt)
            else:
                yield InputReport(label, repr(leaf)[:80], False)
