"""Run a kernel forward and backward, decide every element, and report.

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
from kernels_core.errors import ExactRefError, NotCovered, UsageError
from kernels_core.reference import Check, Reference, Result, reference
from kernels_core.report import InputReport, Raised, Report, TensorReport
from kernels_core.rows import mismatch_row, row
from kernels_core.standin import forward_of

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
        ExactRefError: a mistake of the caller (an untraceable reference, a wrong shape); never for a fault of the kernel.
    """
    start = time.monotonic()
    ref = _reference(function, reference, reference_backward, surrogate)
    arguments = _fit(ref, inputs)
    check = Check(ref, arguments, profile=profile, wrt=wrt, kinks=kinks)
    upstream = list(grads) if grads is not None else draw_upstream(check, seed)
    rows: list[TensorReport] = []
    raised = None
    try:
        outputs, gradients = run_kernel(function, inputs, arguments, check, upstream)
        results = check.both(upstream)
        rows = _rows(results, outputs, gradients)
    except _KernelRaisedError as error:
        raised = error.raised
    device = next((str(t.device) for t in check.tensors.values()), "cpu")
    return Report(
        name=name or _title(function), function=_title(function), reference=ref.name, inputs=tuple(_inputs(arguments, check)),
        tensors=tuple(rows), raised=raised, seed=seed, profile=profile, device=device, seconds=time.monotonic() - start,
    )  # fmt: skip


def check(function: Callable[..., Any], args: Sequence[Any], *, reference: Callable[..., Any] | None = None, **options: Any) -> Report:
    """Verify a kernel on positional arguments; options as in `verify`."""
    ref = _reference(function, reference, None, False)
    return verify(function, tracing.bind(ref.function, list(args), {}), reference=ref, **options)


def assert_covered(function: Callable[..., Any], args: Sequence[Any], *, reference: Callable[..., Any] | None = None, **options: Any) -> None:
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
            f"  {found.name} {found.dtype}{list(found.shape)}: {found.covered} of {found.elements} covered, {found.violated} violated, "
            f"{found.undecided} undecided, {found.unconstrained} unconstrained"
        )
        if found.failure is not None:
            lines += [f"    {line}" for line in (found.failure.pattern, *found.failure.diagnosis)]
            for e in found.failure.elements[:3]:
                lines.append(f"    {list(e.index)}: got {e.actual!r}, admissible [{e.lower!r}, {e.upper!r}], exact {e.exact!r}")
        if found.note:
            lines.append(f"    {found.note}")
    return "\n".join(lines)


def _reference(function: Callable[..., Any], given: Callable[..., Any] | None, backward: Callable[..., Any] | None, surrogate: bool) -> Reference:
    if given is None:
        if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
            given = function.forward if isinstance(function, torch.nn.Module) else function
        else:
            return reference(forward_of(function), backward=backward, surrogate=surrogate, name=f"{function.__name__}.forward")
    return reference(given, backward=backward, surrogate=surrogate)


def _fit(ref: Reference, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs under the reference's parameter names: matched by name where all fit, else by position."""
    parameters = ref.signature.parameters
    if all(name in parameters for name in inputs):
        return dict(inputs)
    return tracing.bind(ref.function, list(inputs.values()), {})


def draw_upstream(check: Check, seed: int) -> list[Tensor]:
    """Draw upstream gradients per element in logical order, independent per output."""
    generator = torch.Generator().manual_seed(seed + 0x5EED)
    device = next((t.device for t in check.tensors.values()), torch.device("cpu"))
    return [torch.randn(m.shape, generator=generator, dtype=torch.float32).to(m.dtype).to(device) for m in check.cotangents.values()]


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


def user_frames(error: BaseException) -> str:
    """Return the traceback of an exception without the frames of PyTorch and of this program."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not any(p in f.filename for p in ("/torch/", "kernels_core", "exactref_cli"))]
    return "".join(traceback.format_list(frames)).rstrip()


def run_kernel(function: Callable[..., Any], inputs: Mapping[str, Any], arguments: Mapping[str, Any], check: Check,
               upstream: Sequence[Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor | None]]:
    """Run forward and backward on fresh copies of the inputs; return outputs and gradients by name."""
    leaves = {n: t.detach().clone().requires_grad_(n in check.wrt) for n, t in check.tensors.items()}
    placed = tracing.with_tensors(arguments, leaves)
    call = function.apply if isinstance(function, type) and issubclass(function, torch.autograd.Function) else function
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        with _phase("forward"):
            result = call(*placed.values()) if _positional(function, inputs) else tracing.call_bound(function, placed)
            names, tensors = tracing.output_names(result)
        outputs = dict(zip(names, tensors, strict=True))
        with _phase("backward"):
            gradients = _gradients(outputs, leaves, check, upstream)
    return {n: t.detach() for n, t in outputs.items()}, gradients


def _positional(function: Any, inputs: Mapping[str, Any]) -> bool:
    if isinstance(function, type) and issubclass(function, torch.autograd.Function):
        return True
    try:
        inspect.signature(function).bind(*inputs.values())
    except (TypeError, ValueError):
        return False
    return True


def _gradients(outputs: Mapping[str, Tensor], leaves: Mapping[str, Tensor], check: Check, upstream: Sequence[Tensor]) -> dict[str, Tensor | None]:
    wanted = [leaves[name] for name in check.wrt]
    pairs = [(t, g) for t, g in zip((outputs[n] for n in check.cotangents if n in outputs), upstream, strict=False) if t.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(wanted)
    if pairs and wanted:
        found = torch.autograd.grad([t for t, _ in pairs], wanted, [g.clone() for _, g in pairs], allow_unused=True)
    return {f"grad_{name}": grad for name, grad in zip(check.wrt, found, strict=True)}


def _rows(results: Mapping[str, Result], outputs: Mapping[str, Tensor], gradients: Mapping[str, Tensor | None]) -> list[TensorReport]:
    rows = []
    for name, result in results.items():
        kind = "gradient" if name.startswith("grad_") else "output"
        actual = gradients.get(name) if kind == "gradient" else outputs.get(name)
        note = ""
        if actual is None and kind == "gradient":
            actual, note = torch.zeros(result.meta.shape, dtype=result.meta.dtype), "the backward returned None, which means zero"
        try:
            if actual is None:
                raise UsageError(f"{name}: the kernel returned no such output; it returned {', '.join(outputs)}")
            rows.append(row(result, actual, kind, note))
        except UsageError as error:
            rows.append(mismatch_row(result, kind, str(error).splitlines()[0]))
    extra = [name for name in outputs if name not in results]
    if extra and rows:
        raise UsageError(f"the kernel returned {', '.join(extra)}, which the reference does not have\nlet both return the same outputs")
    return rows


def _title(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _inputs(arguments: Mapping[str, Any], check: Check) -> Iterator[InputReport]:
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            yield InputReport(name, f"{str(value.dtype)[6:]}{list(value.shape)}", name in check.wrt)
        else:
            yield InputReport(name, repr(value)[:80], False)

