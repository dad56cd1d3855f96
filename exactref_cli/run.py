"""Run cases one after the other: what one does wrong never stops the others."""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from exactref_cli import exits
from exactref_cli.inputs import Drawn, Input, exhaustive
from kernels_core import verify as engine
from kernels_core.battery import Settings, Size
from kernels_core.errors import AssumptionError, ExactRefError, TargetError, described
from kernels_core.inputs.exhaustive import require_elementwise
from kernels_core.profiles.knobs import Given
from kernels_core.report import Report, Verdict
from kernels_core.sensitivity import insensitive
from kernels_core.tracing.arguments import named_tensors


@dataclasses.dataclass(frozen=True)
class Case:
    """One verification to run.

    Attributes:
        name: "mymatmul[dtype=float32,M=1]".
        function: the kernel, and `function_text` what the user calls it.
        reference: None for the Function's own forward, and `reference_text` what the user calls it.
        inputs: makes the inputs when the case is run.
        given: the inputs as they are to be made; () where a function makes them.
        repeat: the command that runs this case alone.
        expect: the verdict that makes the case succeed.
        notes: what was chosen for the user.
        battery: "all", "none" or names of items of the contract battery.
        sizes: further sizes for the battery.
        require_sensitivity: the format whose rounding every wider output and gradient must be able to show.
        nondet_tol: the largest difference between calls on the same inputs; None takes any.
        free: names of the tensor inputs that nobody gave values for.
        ranged: a function gave the values, and families of values are drawn within their range.
        reference_backward_text: what the user calls it.
        folder: that targets which are paths are relative to.
        seed, device, profile, bound, kinks, reference_backward, surrogate: as the engine takes them.
    """

    name: str
    function: Callable[..., Any]
    function_text: str
    inputs: Callable[[], Drawn]
    reference: Callable[..., Any] | None = None
    reference_text: str = ""
    reference_backward: Callable[..., Any] | None = None
    surrogate: bool = False
    seed: int = 0
    device: str = "cpu"
    profile: Given | None = None
    bound: str | None = None
    kinks: str = "accept"
    battery: str | tuple[str, ...] = "none"
    sizes: tuple[Size, ...] = ()
    free: tuple[str, ...] = ()
    ranged: bool = False
    nondet_tol: float | None = None
    expect: str = "covered"
    repeat: str = ""
    notes: tuple[str, ...] = ()
    require_sensitivity: str | None = None
    reference_backward_text: str = ""
    folder: Path = dataclasses.field(default_factory=Path.cwd)
    given: tuple[Input, ...] = ()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        case: that was run.
        report: of the engine, None where there is none.
        error: one message where there is no report.
        code: the exit code of this case alone, `expect` taken into account.
        details: the traceback behind an internal error, for --debug.
        insensitive: what the required sensitivity lacks, one line each.
    """

    case: Case
    report: Report | None
    error: str
    code: int
    details: str = ""
    insensitive: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The verdict as users read it, together with what was expected."""
        if self.report is None:
            words = {exits.INTERNAL: "internal error", exits.USAGE: "error", exits.VIOLATED: "raised"}
            return words.get(self.code, "not decided")
        found = self.report.verdict.value
        if self.insensitive and self.code == exits.NOT_DECIDED:
            return f"insensitive ({found})"
        if self.case.expect == "covered":
            return found
        return f"{found} as expected" if self.code == exits.COVERED else f"{found} but expected {self.case.expect}"


def run_case(case: Case) -> Outcome:
    """Run one case; never raises for anything that the case does."""
    missing = missing_device(case.device)
    if missing:
        return Outcome(case, None, missing, exits.NOT_DECIDED)
    try:
        report = _verify(case)
    except TargetError as error:
        return Outcome(case, None, "\n".join(filter(None, (str(error), error.frames))), exits.USAGE)
    except AssumptionError as error:
        return Outcome(case, None, str(error), exits.NOT_DECIDED)
    except ExactRefError as error:
        return Outcome(case, None, str(error), exits.USAGE)
    except SystemExit as error:  # must never pass for a success
        return Outcome(case, None, f"the kernel ended the program: sys.exit({error.code!r})", exits.VIOLATED)
    except (MemoryError, torch.OutOfMemoryError) as error:
        return Outcome(case, None, f"out of memory: {error}", exits.NOT_DECIDED)
    except Exception as error:
        if lacking := missing_memory(str(error)):
            return Outcome(case, None, lacking, exits.NOT_DECIDED)
        text = described(error)
        return Outcome(case, None, text, exits.INTERNAL, "".join(traceback.format_exception(error)).rstrip())
    if lacking := missing_compiler(report) or missing_memory(report.raised.message if report.raised else ""):
        return Outcome(case, None, lacking, exits.NOT_DECIDED)
    code, blind = judge(report.verdict, case.expect), unshown(report, case.require_sensitivity)
    return Outcome(case, report, "", exits.worst([code, exits.NOT_DECIDED]) if blind else code, insensitive=blind)


def unshown(report: Report, required: str | None) -> tuple[str, ...]:
    """Return why these inputs could not show a rounding to the required format; () where they could."""
    if required is None or not report.tensors:
        return ()
    blind = insensitive(report, required)
    if blind is None:
        return (f"require_sensitivity: no output or gradient is wider than {required}",)
    remedy = "give inputs with more digits, or shorter sums"
    return (
        (f"require_sensitivity: {required} rounding of {', '.join(blind)} would not show; {remedy}",) if blind else ()
    )


def judge(verdict: Verdict, expect: str) -> int:
    """Return the exit code of a verdict under `expect`, strictly: a known fault that is no longer caught fails."""
    if expect == "covered":
        return exits.of_verdict(verdict)
    if verdict.value == expect:
        return exits.COVERED
    return exits.of_verdict(verdict) or exits.VIOLATED


_COMPILERS = {"InvalidCxxCompiler": "C++ compiler", "TritonMissing": "Triton"}  # as Inductor calls what it lacks


def missing_compiler(report: Report) -> str:
    """Return what torch.compile lacks on this machine, where that is why the kernel raised; "" otherwise."""
    message = report.raised.message if report.raised is not None else ""
    for error, name in _COMPILERS.items():
        if error in message:
            return f"torch.compile finds no {name} on this machine\ninstall one, or compile with another backend"
    return ""


# How PyTorch's allocators say that there is no more memory; that of the CPU raises a plain RuntimeError.
_NO_MEMORY = ("DefaultCPUAllocator: ", "out of memory")


def missing_memory(message: str) -> str:
    """Return what to do where an error says that this machine's memory does not suffice; "" for other errors."""
    if not any(text in message for text in _NO_MEMORY):
        return ""
    wanted = re.search(r"allocate (\d+) bytes", message)
    size = f": {int(wanted[1]) / 2**30:,.1f} GiB at once are not to be had" if wanted else ""
    return f"out of memory{size}\ngive smaller shapes, or a machine with more memory"


def missing_device(device: str) -> str:
    """Return why `device` cannot be used on this machine, "" where it can."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        return f"device {device} cannot be used here: {str(error).splitlines()[0]}"
    return ""


def _require_elementwise(case: Case, drawn: Drawn) -> None:
    for name in exhaustive(case.given):
        check = engine.prepared(case.function, drawn.values, reference=case.reference, profile=case.profile)
        kept = list(check.tensors)[list(named_tensors(drawn.values)).index(name)]  # as the reference calls it
        require_elementwise(check, kept)


def _verify(case: Case) -> Report:
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):  # the caller's random state is left as it was
        torch.default_generator.manual_seed(case.seed)  # and a case does not depend on those before it
        drawn = case.inputs()
        _require_elementwise(case, drawn)
        report = engine.verify(
            case.function, drawn.values, reference=case.reference, reference_backward=case.reference_backward,
            surrogate=case.surrogate, wrt=drawn.wrt, seed=case.seed, profile=case.profile,
            bound=case.bound, kinks=case.kinks, name=case.name, battery=case.battery,
            settings=Settings(sizes=case.sizes, free=case.free, ranged=case.ranged, seed=case.seed,
                              nondet_tol=case.nondet_tol),
        )  # fmt: skip
    return dataclasses.replace(
        report,
        function=case.function_text,
        reference=case.reference_text or report.reference,
        notes=(*case.notes, *report.notes),
    )
