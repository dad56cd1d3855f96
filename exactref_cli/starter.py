"""The first spec of a kernel: shapes found by trial, the reference that computes the same, the dtypes that it takes."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from exactref_cli import fitting, gradcheck
from exactref_cli.inputs import GroupInput, Input, PlainInput, TensorInput, draw, dtype_named, each, flat
from exactref_cli.options import Options
from exactref_cli.run import Case
from exactref_cli.target import CATALOGUE, load
from exactref_cli.templates import SIZES
from exactref_cli.trial import Trial
from kernels_core import verify as engine
from kernels_core.errors import InvariantError, TraceError, UsageError
from kernels_core.tracing.complex_parts import differentiable

DTYPES = ("float32", "bfloat16", "float16", "float64")  # in this order; at most three of them
_WORDS = {16: "M", 32: "K", 8: "N", 24: "P", 2: "B", 4: "C", 12: "L", 6: "H", 5: "W", 3: "O"}
_LETTERS = (*dict.fromkeys(SIZES), *(f"D{number}" for number in range(1, 100)))


@dataclasses.dataclass(frozen=True)
class Starter:
    """A spec that is ready to be written.

    Attributes:
        path: of the file.
        text: of the file.
        told: what the user should know, one line each.
        complete: False where the user has to name a reference before the spec runs.
    """

    path: Path
    text: str
    told: tuple[str, ...]
    complete: bool


def starter(options: Options, output: Path | None, force: bool = False) -> Starter:
    """Return the first spec of a kernel.

    Args:
        options: the target, with what the user fixed.
        output: the file; None for one called after the kernel, in the working directory.
        force: replace a file that is there.

    Raises:
        ExactRefError: the file is there, the target cannot be loaded, or no shapes are found.
    """
    path = Path(f"{_stem(options.target)}.yaml") if output is None else output
    require_free(path, force)
    cases = _cases(options)
    reference, why, complete = _reference(options, cases[0])
    dtypes = _dtypes(cases, reference)
    blocks = [_check(case, options, path.parent, dtypes, reference) for case in cases]
    text = "\n".join([_heading(options.target, path, why), *blocks])
    return Starter(path, text, tuple(_told(cases, dtypes, why)), complete)


def _cases(options: Options) -> list[Case]:
    """Return the cases in the first dtype that the kernel takes."""
    first: UsageError | None = None
    for name in DTYPES:
        try:
            return gradcheck.cases(dataclasses.replace(options, dtype=(name,)))
        except UsageError as error:
            first = first or error
    raise first or InvariantError("no dtype was tried")


def require_free(path: Path, force: bool) -> None:
    """Refuse to write over a file.

    Raises:
        UsageError: the file is there already, and may not be replaced.
    """
    if path.exists() and not force:
        raise UsageError(f"{path} is there already\nchoose another file with -o, or replace it with --force")


def write(found: Starter) -> None:
    """Write the spec.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        found.path.write_text(found.text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{found.path} cannot be written: {error.strerror}") from error


def _stem(target: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", target.rpartition(":")[2]).strip("_").lower()


def _reference(options: Options, case: Case) -> tuple[str, str, bool]:
    """Return the reference ("" for the kernel's own forward), why it was chosen, and whether the spec can run."""
    if options.reference is not None:
        return options.reference, "", True
    found = fitting.fit(case.function, draw(case.given, case.seed).values)
    if found.agreeing:
        others = [name for name in found.agreeing[1:] if name.startswith(f"{found.agreeing[0]}.")]
        more = f"; other algorithms: {', '.join(others)}" if others else ""
        return found.agreeing[0], f"{found.agreeing[0]} computes what the kernel's forward does{more}", True
    try:
        drawn = case.inputs()
        _ = engine.prepared(case.function, drawn.values, wrt=drawn.wrt).forward
    except TraceError as error:
        reason = str(error).splitlines()[0]
        return "", f"a reference is needed: {reason}", False
    near = f" (of its form, with other values: {', '.join(found.differing[:4])})" if found.differing else ""
    return "", f"no entry of the catalogue computes what the kernel's forward does{near}: its own forward is used", True


def _dtypes(cases: Sequence[Case], reference: str) -> list[str]:
    """Return the dtypes in which the kernel runs and returns what the reference returns."""
    for level in ("backward", "forward"):  # a backward that raises is a fault to be shown, not a dtype to be left out
        found = [name for name in DTYPES if all(_takes(case, name, level, reference) for case in cases)]
        if found:
            return found[:3]
    return [DTYPES[0]]


def _takes(case: Case, dtype: str, level: str, reference: str) -> bool:
    kind = dtype_named(dtype)
    given = [_cast(one, kind) for one in case.given]
    if not Trial(case.function, "cpu", kind).accepts(given, level, False):
        return False
    known = load(reference, case.folder) if reference.startswith(f"{CATALOGUE}:") else None
    return known is None or fitting.same_dtypes(case.function, known, draw(given, case.seed).values)


def _cast(given: Input, dtype: torch.dtype) -> Input:
    def cast(one: TensorInput | PlainInput) -> TensorInput | PlainInput:
        if isinstance(one, TensorInput) and differentiable(one.dtype):
            return dataclasses.replace(one, dtype=dtype)
        return one

    return GroupInput(given.name, each(given, cast)) if isinstance(given, GroupInput) else cast(given)


def _heading(target: str, path: Path, why: str) -> str:
    lines = [
        f"Written by `exactref init {target}`; every key is explained in docs/specs.md.",
        f"    exactref explain {path}     what it will check, and the cost",
        f"    exactref check {path}       the checks themselves",
    ]
    return "\n".join([*(f"# {line}" for line in lines), *([f"# {why}."] if why else []), "version: 1", "checks:"])


def _check(case: Case, options: Options, folder: Path, dtypes: Sequence[str], reference: str) -> str:
    names = _names([size for one in _tensors(case) for size in one.shape])
    dims = ", ".join(f"{name}: {size}" for size, name in names.items())
    lines = [
        f"  - name: {_title(case, options.target)}",
        f"    function: {_relative(options.target, folder)}",
        f"    reference: {_relative(reference, folder)}" if reference else
        "    # reference: kernels.py:plain    # plain PyTorch that computes the same; it checks the forward too",
        "    seed: 0                 # of inputs and upstream gradients",
    ]  # fmt: skip
    lines += [f"    dims: {{{dims}}}    # found by trial: put the sizes that you use"] * bool(dims)
    lines += ["    inputs:                 # in argument order"]
    lines += [f"      {one.name}: {text}" for one in case.given if (text := _input(one, names))]
    lines += [
        "    matrix:                 # every combination is one case",
        f"      dtype: [{', '.join(dtypes)}]",
        *([f"      # {next(iter(names.values()))}: [1, 16, 17]"] if names else []),
        "    battery: all            # what must hold beside the values of one call; `none` leaves it out",
        "",
    ]
    return "\n".join(lines)


def _title(case: Case, target: str) -> str:
    variant = case.name.removeprefix(target).strip("[]")
    return target.rpartition(":")[2] + (f" {variant}" if variant else "")


def _relative(target: str, folder: Path) -> str:
    where, _, attribute = target.rpartition(":")
    if where == CATALOGUE or not where.endswith(".py"):
        return target
    return f"{os.path.relpath(where, folder)}:{attribute}"


def _tensors(case: Case) -> list[TensorInput]:
    return [one for group in case.given for one in flat(group) if isinstance(one, TensorInput)]


def _names(sizes: Sequence[int]) -> dict[int, str]:
    """Return a name for every size above 1, the letters of the templates where they are theirs."""
    found: dict[int, str] = {}
    for size in dict.fromkeys(size for size in sizes if size > 1):
        free = [name for name in _LETTERS if name not in found.values() and name not in _WORDS.values()]
        found[size] = _WORDS.get(size) or free[0]
    return found


def _input(given: Input, names: dict[int, str]) -> str:
    """Return an input as the spec writes it, "" for one that is left out: its default says the same."""
    if isinstance(given, GroupInput):
        return _flow(_group(given.tree, names))
    if isinstance(given, PlainInput):
        return "" if given.value is None or not _plain(given.value) else _flow({"value": given.value})
    return _flow(_tensor(given, names))


def _group(tree: Any, names: dict[int, str]) -> dict[str, Any]:
    if isinstance(tree, dict):
        return {"dict": {key: _group(item, names) for key, item in tree.items()}}
    if isinstance(tree, (list, tuple)):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [_group(item, names) for item in tree]}
    return {"value": tree.value} if isinstance(tree, PlainInput) else _tensor(tree, names)


def _tensor(given: TensorInput, names: dict[int, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"shape": [names.get(size, size) for size in given.shape]}
    if not given.dtype.is_floating_point:
        found["dtype"] = str(given.dtype).removeprefix("torch.")
    if given.values != "normal":
        found["values"] = given.values
    return found


def _plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str)) or (isinstance(value, list) and all(map(_plain, value)))


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).strip()


def _told(cases: Sequence[Case], dtypes: Sequence[str], why: str) -> Iterator[str]:
    for case in cases:
        yield from case.notes
    yield f"dtypes: {', '.join(dtypes)}"
    if why:
        yield why


def checked(found: Starter) -> str:
    """Return the line that says what to do next."""
    if found.complete:
        return f"run it: exactref check {found.path}"
    return f"name a reference in it, then: exactref check {found.path}"
