"""Run a kernel forward and backward, decide every element, and report.

Three ways to ask for it:

    verify(function, inputs, reference=...)     for the command line: inputs by name, reference optional
    check(function, args, reference=...)        the same for a notebook
    assert_covered(function, args, ...)         raises with the full report
"""

from __future__ import annotations

import contextlib
import inspect
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernels_core import tracing
from kernels_core.errors import ExactRefError, NotCovered, TraceError, UnsupportedOperation, UsageError
from kernels_core.reference import Check, Reference, Result, reference
from kernels_core.report import InputReport, Raised, Report, TensorReport
from kernels_core.rows import mismatch_row, row
from kernels_core.standin import forward_of, is_function_class

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
    profile: str = "ieee",
    kinks: str = "accept",
    name: str = "",
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
        profile: arithmetic profile.
        kinks: "accept" or "convention".
        name: of the case.

    Raises:
        ExactRefError: a mistake of the caller (an untraceable reference, a wrong shape); never a fault of the kernel.
    """
    start = time.monotonic()
    ref = _reference(function, reference, reference_backward, surrogate)
    arguments = _fit(ref, inputs)
    check = Check(ref, arguments, profile=profile, wrt=wrt, kinks=kinks)
    rows: list[TensorReport] = []
    raised: Raised | None = None
    notes: tuple[str, ...] = ()
    try:
        _trace(function, inputs, check, own=reference is None)
        upstream = list(grads) if grads is not None else draw_upstream(check, seed)
        outputs, gradients = run_kernel(function, inputs, arguments, check, upstream)
        rows = _rows(check, upstream, outputs, gradients)
        notes = () if gradients is not None else ("gradients not checked: an output has another shape",)
    except _KernelRaisedError as error:
        raised = error.raised
    return Report(
        name=name or _title(function), function=_title(function), reference=ref.name,
        inputs=tuple(_inputs(arguments, check)), tensors=tuple(rows), raised=raised, seed=seed, profile=profile,
        device=str(check.device), seconds=time.monotonic() - start, notes=notes,
    )  # fmt: skip


def check(
    function: Callable[..., Any], args: Sequence[Any], *, reference: Callable[..., Any] | None = None, **options: Any
) -> Report:
    """Verify a kernel on positional arguments; options as in `verify`."""
    ref = _reference(function, reference, None, False)
    return verify(function, tracing.bind(ref.function, list(args), {}), reference=ref, **options)


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
    lines = [f"{report.name}: {report.verdict} (seed {report.seed}, profile {report.profile})"]
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
    return "\n".join(lines)


def _reference(
    function: Callable[..., Any],
    given: Callable[..., Any] | None,
    backward: Callable[..., Any] | None,
    surrogate: bool,
) -> Reference:
    if given is not None:
        return reference(given, backward=backward, surrogate=surrogate)
    own, name = function, _title(function)
    if is_function_class(function):
        own, name = forward_of(function), f"{name}.forward"
    elif isinstance(function, torch.nn.Module):
        own, name = function.forward, f"{name}.forward"
    return reference(own, backward=backward, surrogate=surrogate, name=name)


def _fit(ref: Reference, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs under the reference's parameter names: matched by name where all fit, else by position."""
    parameters = ref.signature.parameters
    if not all(name in parameters for name in inputs):
        return tracing.bind(ref.function, list(inputs.values()), {})
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
            with torch.random.fork_rng(devices=[]), _phase("forward"):
                _call(function, inputs, tracing.with_tensors(check.arguments, leaves))
        raise


def draw_upstream(check: Check, seed: int) -> list[Tensor]:
    """Draw upstream gradients per element in logical order, independent per output."""
    generator = torch.Generator().manual_seed(seed + 0x5EED)
    drawn = [(torch.randn(m.shape, generator=generator, dtype=torch.float32), m) for m in check.cotangents.values()]
    return [numbers.to(m.dtype).to(check.device) for numbers, m in drawn]


class _KernelRaisedError(Exception):
    def __init__(self, raised: Raised) -> None:
        super().__init__(raised.message)
        self.raised = raised


@contextlib.contextmanager
def _phase(name: str) -> Iterator[None]:
    try:
        yield
    except (ExactRefError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a kernel that calls sys.exit has not returned its result either
        raise _KernelRaisedError(Raised(name, f"{type(error).__name__}: {error}", user_frames(error))) from error


_NOT_THE_USERS = ("/torch/", "kernels_core", "exactref_cli")


def user_frames(error: BaseException) -> str:
    """Return the traceback of an exception without the frames of PyTorch and of this program."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not any(p in f.filename for p in _NOT_THE_USERS)]
    return "".join(traceback.format_list(frames)).rstrip()


def run_kernel(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    arguments: Mapping[str, Any],
    check: Check,
    upstream: Sequence[Tensor],
) -> tuple[dict[str, Tensor], dict[str, Tensor | None] | None]:
    """Run forward and backward on fresh copies of the inputs; return outputs and gradients by name.

    The gradients are None where the outputs have other shapes than the reference's: there is no upstream for them.
    """
    leaves = {n: t.detach().clone().requires_grad_(n in check.wrt) for n, t in check.tensors.items()}
    placed = tracing.with_tensors(arguments, leaves)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        with _phase("forward"):
            names, tensors = tracing.output_names(_call(function, inputs, placed))
        outputs = dict(zip(names, tensors, strict=True))
        gradients = None
        if all(outputs[n].shape == m.shape for n, m in check.cotangents.items() if n in outputs):
            with _phase("backward"):
                gradients = _gradients(outputs, leaves, check, upstream)
    return {n: t.detach() for n, t in outputs.items()}, gradients


def _call(function: Callable[..., Any], inputs: Mapping[str, Any], placed: Mapping[str, Any]) -> Any:
    call: Callable[..., Any] = function.apply if is_function_class(function) else function
    return call(*placed.values()) if _positional(function, inputs) else tracing.call_bound(function, placed)


def _positional(function: Any, inputs: Mapping[str, Any]) -> bool:
    if is_function_class(function):
        return True
    try:
        inspect.signature(function).bind(*inputs.values())
    except (TypeError, ValueError):
        return False
    return True


def _gradients(
    outputs: Mapping[str, Tensor], leaves: Mapping[str, Tensor], check: Check, upstream: Sequence[Tensor]
) -> dict[str, Tensor | None]:
    wanted = [leaves[name] for name in check.wrt]
    returned = (outputs[name] for name in check.cotangents if name in outputs)
    pairs = [(t, g) for t, g in zip(returned, upstream, strict=False) if t.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(wanted)
    if pairs and wanted:
        found = torch.autograd.grad([t for t, _ in pairs], wanted, [g.clone() for _, g in pairs], allow_unused=True)
    return {f"grad_{name}": grad for name, grad in zip(check.wrt, found, strict=True)}


def _rows(
    check: Check,
    upstream: Sequence[Tensor],
    outputs: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor | None] | None,
) -> list[TensorReport]:
    results = check.outputs() if gradients is None else check.both(upstream)
    extra = [name for name in outputs if name not in results]
    if extra:
        wanted = ", ".join(check.forward.outputs)
        raise UsageError(f"the kernel returned {', '.join(outputs)}; the reference has {wanted}\n"
                         "let both return the same outputs")  # fmt: skip
    return [_row_of(result, name, outputs, gradients or {}) for name, result in results.items()]


def _row_of(
    result: Result, name: str, outputs: Mapping[str, Tensor], gradients: Mapping[str, Tensor | None]
) -> TensorReport:
    kind = "gradient" if name.startswith("grad_") else "output"
    actual, note = gradients.get(name) if kind == "gradient" else outputs.get(name), ""
    if actual is None and kind == "gradient":
        actual = torch.zeros(result.meta.shape, dtype=result.meta.dtype, device=result.enclosure.mid.device)
        note = "the backward returned None, which means zero"
    try:
        if actual is None:
            raise UsageError(f"the kernel returned no such output; it returned {', '.join(outputs)}")
        return row(result, actual, kind, note)
    except UsageError as error:
        return mismatch_row(result, kind, str(error).splitlines()[0].removeprefix(f"{name}: "))


def _title(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _inputs(arguments: Mapping[str, Any], check: Check) -> Iterator[InputReport]:
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            yield InputReport(name, f"{str(value.dtype)[6:]}{list(value.shape)}", name in check.wrt)
        else:
            yield InputReport(name, repr(value)[:80], False)
