"""Write a violated case down, as small as it gets: a Python file that needs torch only, and a spec."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from exactref_cli import run
from exactref_cli.target import CATALOGUE
from kernels_core import minimal
from kernels_core import verify as engine
from kernels_core.errors import UsageError
from kernels_core.kernel.call import draw_upstream
from kernels_core.kernel.callee import function_class
from kernels_core.kernel.modules import ModuleKernel, as_kernel
from kernels_core.report import Element, Report, TensorReport, Verdict

Tensor = torch.Tensor
PLAIN = (bool, int, float, str, type(None))
_TAKEN = {"kernel", "module", "path", "spec", "output", "outputs", "upstream", "returned", "torch", "sys", "inf", "nan"}


@dataclasses.dataclass(frozen=True)
class Reproducer:
    """A violated case with its smallest inputs."""

    case: run.Case
    inputs: Mapping[str, Any]
    wrt: tuple[str, ...]
    report: Report
    upstream: Mapping[str, Tensor]

    @property
    def row(self) -> TensorReport:
        """The violated tensor."""
        row = minimal.violated_row(self.report)
        if row is None:
            raise UsageError("nothing to reproduce: no element is violated")
        return row


def write(outcome: run.Outcome, folder: Path) -> str:
    """Write the reproducer of one outcome and return a line that says where; "" where nothing is violated.

    Raises:
        UsageError: the folder cannot be written.
    """
    report = outcome.report
    if report is None or report.verdict is not Verdict.VIOLATED or minimal.violated_row(report) is None:
        return ""
    found = _smallest(outcome.case)
    if unwritable := [name for name, value in found.inputs.items() if not isinstance(value, (Tensor, *PLAIN))]:
        return f"no reproducer: {unwritable[0]} is neither a tensor nor a plain value"
    if any(isinstance(value, Tensor) and value.is_complex() for value in found.inputs.values()):
        return "no reproducer: an input is complex"
    if found.row.kind == "gradient" and found.row.name.removeprefix("grad_") not in found.inputs:
        return f"no reproducer: {found.row.name} is the gradient of something that is no input"
    stem = folder / re.sub(r"[^A-Za-z0-9_]+", "_", outcome.case.name).strip("_")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stem.with_suffix(".py").write_text(script(found, folder), encoding="utf-8")
        stem.with_suffix(".yaml").write_text(spec(found, folder), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--reproduce: {folder} cannot be written: {error.strerror}") from error
    sizes = ", ".join(f"{given.name} {given.text}" for given in found.report.inputs)
    return f"reproducer: {stem}.py needs torch only, {stem}.yaml is a spec ({sizes})"


def _smallest(case: run.Case) -> Reproducer:
    drawn = case.inputs()
    options: dict[str, Any] = {
        "reference": case.reference, "reference_backward": case.reference_backward, "surrogate": case.surrogate,
        "wrt": drawn.wrt, "profile": case.profile, "bound": case.bound, "kinks": case.kinks,
    }  # fmt: skip
    verify = functools.partial(
        engine.verify, case.function, seed=case.seed, name=case.name, audit=False, diagnose=False, **options
    )
    inputs, report = minimal.smallest(verify, drawn.values)
    check = engine.prepared(case.function, inputs, **options)
    upstream = dict(zip(check.cotangents, draw_upstream(check, case.seed), strict=True))
    return Reproducer(case, inputs, tuple(check.wrt), report, upstream)


def script(found: Reproducer, folder: Path) -> str:
    """Return a Python file that shows the violation with torch alone, and exits 1 while it is there."""
    element = found.row.failure.elements[0]  # type: ignore[union-attr]
    lines = [
        f'"""{found.row.name} of {found.case.function_text}: a value that no correct kernel may return.',
        "",
        "Needs torch and the kernel alone. The interval holds every value that a correct kernel may return here; it",
        f"was certified by exactref (profile {found.report.profile}, reference {found.report.reference}).",
        '"""',
        "",
        *_imports(found, folder),
        "",
        *_arguments(found),
        *_call(found, element),
        f"exact, lower, upper = {element.exact!r}, {element.lower!r}, {element.upper!r}",
        "",
        'print(f"returned   {returned!r}")',
        'print(f"exact      {exact!r}")',
        'print(f"admissible [{lower!r}, {upper!r}]")',
        "raise SystemExit(0 if lower <= returned <= upper else 1)",
        "",
    ]
    return "\n".join(lines)


def _imports(found: Reproducer, folder: Path) -> Iterator[str]:
    where, _, attribute = found.case.function_text.rpartition(":")
    special = "from math import inf, nan  # noqa: F401"
    if where.endswith(".py"):
        place = os.path.relpath((found.case.folder / where).resolve(), folder.resolve())
        yield from ("import importlib.util", "import sys", special, "from pathlib import Path", "", "import torch", "")
        yield f"path = (Path(__file__).parent / {place!r}).resolve()"
        yield from (
            "sys.path.append(str(path.parent))",
            'spec = importlib.util.spec_from_file_location("kernel_module", path)',
            "module = importlib.util.module_from_spec(spec)",
            "sys.modules[spec.name] = module",
            "spec.loader.exec_module(module)",
        )
        yield f"kernel = module.{attribute}"
        return
    yield from ("import importlib", "import sys", special, "", "import torch", "")
    yield 'sys.path.insert(0, "")  # modules are looked for in the working directory too'
    yield f"kernel = importlib.import_module({where!r}).{attribute}"


def _arguments(found: Reproducer) -> Iterator[str]:
    for name, value in found.inputs.items():
        grad = ".requires_grad_()" if name in found.wrt else ""
        yield f"{_variable(name)} = {_tensor(value) + grad if isinstance(value, Tensor) else repr(value)}"
    yield ""


def _call(found: Reproducer, element: Element) -> Iterator[str]:
    yield f"output = {_called(found)}"
    name, kind = found.row.name, found.row.kind
    index = str(list(element.index)) if element.index else ""
    if kind == "output":
        yield f"returned = {name}{index}.item()"
        return
    outputs, grads = ", ".join(found.upstream), ", ".join(_tensor(g) for g in found.upstream.values())
    wanted = _variable(name.removeprefix("grad_"))
    yield f"outputs, upstream = [{outputs}], [{grads}]"
    yield f"(gradient,) = torch.autograd.grad(outputs, [{wanted}], upstream, allow_unused=True)"
    yield f"returned = 0.0 if gradient is None else gradient{index}.item()"


def _called(found: Reproducer) -> str:
    """Return the call; parameters of a module take the place of its own."""
    kernel = as_kernel(found.case.function)
    parameters = set(kernel.values()) if isinstance(kernel, ModuleKernel) else set()
    arguments = ", ".join(_variable(name) for name in found.inputs if name not in parameters)
    if placed := ", ".join(f"{name!r}: {_variable(name)}" for name in found.inputs if name in parameters):
        return f"torch.func.functional_call(kernel, {{{placed}}}, ({arguments},))"
    return f"kernel{'.apply' if function_class(found.case.function) is not None else ''}({arguments})"


def _variable(name: str) -> str:
    plain = name.replace(".", "_")
    return f"{plain}_" if plain in _TAKEN else plain


def _tensor(tensor: Tensor) -> str:
    values = tensor.double().tolist() if tensor.is_floating_point() else tensor.tolist()
    device = f', device="{tensor.device}"' if tensor.device.type != "cpu" else ""
    return f"torch.tensor({values!r}, dtype={tensor.dtype}{device})"


def spec(found: Reproducer, folder: Path) -> str:
    """Return a spec of the case; it fails while the fault is there."""
    case = found.case
    check: dict[str, Any] = {"name": case.name, "function": _target(case.function_text, case.folder, folder)}
    if case.reference_text:
        check["reference"] = _target(case.reference_text, case.folder, folder)
    if case.reference_backward_text:
        check["reference_backward"] = _target(case.reference_backward_text, case.folder, folder)
    profile = "auto" if found.report.arithmetic.reason else found.report.profile
    check |= {"seed": case.seed, "profile": profile, "kinks": case.kinks, "battery": "none"}
    check |= {"bound": case.bound} if case.bound is not None else {}
    check |= {"surrogate": True} if case.surrogate else {}
    check["inputs"] = {name: _input(name, value, found.wrt) for name, value in found.inputs.items()}
    return yaml.safe_dump({"version": 1, "checks": [check]}, sort_keys=False, default_flow_style=None, width=100)


def _input(name: str, value: Any, wrt: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Tensor):
        return {"value": value}
    given: dict[str, Any] = {"shape": list(value.shape), "dtype": str(value.dtype)[6:]}
    if value.dim():
        given["values"] = value.double().tolist() if value.is_floating_point() else value.tolist()
    elif bool((value == 1).all()):
        given["values"] = "ones"
    if value.is_floating_point():
        given["requires_grad"] = name in wrt
    return given


def _target(text: str, base: Path, folder: Path) -> str:
    where, _, attribute = text.rpartition(":")
    if where == CATALOGUE or not where.endswith(".py"):
        return text
    return f"{os.path.relpath((base / where).resolve(), folder.resolve())}:{attribute}"
