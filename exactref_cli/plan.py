"""From spec files to cases: every combination of a check's matrix is one case."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from exactref_cli import inputs, schema, sizes, spec, target
from exactref_cli.run import Case
from kernels_core.battery import Size
from kernels_core.errors import SpecError, TargetError, UsageError, nearest
from kernels_core.inputs.exhaustive import count
from kernels_core.profiles import AUTO, resolve
from kernels_core.profiles.knobs import WORST_CASE

SUFFIXES = (".yaml", ".yml")


def spec_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files as they are and the spec files of the folders, sorted.

    Raises:
        UsageError: a path does not exist, or a folder holds no spec.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
            if not inside:
                raise UsageError(f"{path} holds no spec file\na spec file ends in .yaml or .yml")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            near = nearest(path.name, [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else [])
            raise UsageError(f"there is no file or folder {path}{near}")
    return list(dict.fromkeys(found))


def from_specs(paths: Iterable[Path]) -> list[Case]:
    """Return the cases of all spec files.

    Raises:
        SpecError: with the mistakes of all files, targets that cannot be loaded among them.
    """
    cases: list[Case] = []
    mistakes: list[str] = []
    for path in paths:
        try:
            cases += from_spec(spec.read(path))
        except SpecError as error:
            mistakes += error.mistakes
    if mistakes:
        raise SpecError(mistakes)
    return cases


def from_spec(file: spec.SpecFile) -> list[Case]:
    """Return the cases of one spec file.

    Raises:
        SpecError: one or more targets cannot be loaded, or a profile or device is not known.
    """
    mistakes: list[str] = []
    cases: list[Case] = []
    for place, check in enumerate(file.checks):
        loaded = _load(file, place, check, mistakes)
        _require_profiles(file, place, check, mistakes)
        _require_devices(file, place, check, mistakes)
        if not mistakes:
            cases += _expand(file, check, loaded)
    if mistakes:
        raise SpecError(mistakes)
    return cases


def select(cases: list[Case], names: Iterable[str]) -> list[Case]:
    """Return the cases with these names, or all where none is given.

    Raises:
        UsageError: no case has such a name.
    """
    wanted = list(names)
    known = [case.name for case in cases]
    for name in wanted:
        if name not in known:
            raise UsageError(f"no case is called {name!r}{nearest(name, known)}")
    return [case for case in cases if case.name in wanted] if wanted else cases


def requiring(cases: list[Case], required: str | None) -> list[Case]:
    """Return the cases with a required sensitivity where one is given, else with that of their spec.

    Raises:
        UsageError: no such format.
    """
    if required is None:
        return cases
    if required not in schema.NARROWER:
        raise UsageError(f"--require-sensitivity: wanted one of {', '.join(schema.NARROWER)}, "
                         f"found {required!r}{nearest(required, schema.NARROWER)}")  # fmt: skip
    return [dataclasses.replace(case, require_sensitivity=required) for case in cases]


def _load(file: spec.SpecFile, place: int, check: schema.Check, mistakes: list[str]) -> dict[str, Any]:
    loaders: dict[str, Callable[[str, Path], Any]] = {
        "function": functools.partial(target.load_kernel, mode=check.mode),
        "reference": target.load_callable,
        "reference_backward": target.load_callable,
        "inputs_from": target.load_callable,
    }
    loaded: dict[str, Any] = {}
    for key, loader in loaders.items():
        text = getattr(check, key)
        try:
            loaded[key] = loader(text, file.path.parent) if text is not None else None
        except TargetError as error:
            mistake = f"{file.where('checks', place, key)}: checks[{place}].{key}: {error}"
            mistakes.append("\n".join(filter(None, (mistake, error.frames))))
    return loaded


def _require_profiles(file: spec.SpecFile, place: int, check: schema.Check, mistakes: list[str]) -> None:
    asked = [(("profile",), check.profile), *((("matrix", "profile"), p) for p in check.matrix.get("profile", []))]
    for path, profile in asked:
        try:
            resolve(AUTO if profile is None else profile, check.bound or WORST_CASE)
        except UsageError as error:
            key, _, text = str(error).partition(": ")
            path = ("bound",) if key == "bound" else path
            where, label = file.where("checks", place, *path), ".".join(path)
            mistakes.append(f"{where}: checks[{place}].{label}: {text.replace(chr(10), '; ')}")


def _require_devices(file: spec.SpecFile, place: int, check: schema.Check, mistakes: list[str]) -> None:
    for path, name in [
        (("device",), check.device),
        *((("matrix", "device"), d) for d in check.matrix.get("device", [])),
    ]:
        if wrong := inputs.wrong_device(name):
            mistakes.append(f"{file.where('checks', place, *path)}: checks[{place}].{'.'.join(path)}: {wrong}")


def _expand(file: spec.SpecFile, check: schema.Check, loaded: Mapping[str, Any]) -> Iterator[Case]:
    for values in itertools.product(*check.matrix.values()):
        combination = dict(zip(check.matrix, values, strict=True))
        device = str(combination.get("device", check.device))
        seed = int(combination.get("seed", check.seed))
        name, given = check.title + _suffix(combination), _given(check, combination)
        yield Case(
            name=name,
            function=loaded["function"],
            function_text=check.function,
            inputs=functools.partial(
                _drawn, _maker(check, combination, loaded["inputs_from"], seed, device), loaded["function"], device
            ),
            given=given,
            reference=loaded["reference"],
            reference_text=check.reference or "",
            reference_backward=loaded["reference_backward"],
            reference_backward_text=check.reference_backward or "",
            folder=file.path.parent,
            surrogate=check.surrogate,
            seed=seed,
            device=device,
            profile=combination.get("profile", check.profile),
            bound=check.bound,
            kinks=check.kinks,
            require_sensitivity=check.require_sensitivity,
            battery=check.battery,
            nondet_tol=check.nondet_tol,
            ranged=loaded["inputs_from"] is not None,
            free=tuple(
                _label(place)
                for place, given in check.leaves()
                if not given.plain and given.values in (None, inputs.MASK)
            ),
            sizes=_sizes(check, combination, seed, device),
            expect=check.expect,
            repeat=shlex.join(["exactref", "check", str(file.path), "--case", name]),
        )


def _suffix(combination: Mapping[str, Any]) -> str:
    marks = (f"{key}={schema.profile_text(value) if key == 'profile' else value}" for key, value in combination.items())
    return "[" + ",".join(marks) + "]" if combination else ""


def _label(place: Iterable[str | int]) -> str:
    """Return "xs[0]" for the place of an input in a spec, ("xs", "list", 0)."""
    name, *rest = place
    return f"{name}{''.join(f'[{key!r}]' for key in rest[1::2])}"


def _drawn(make: Callable[[], inputs.Drawn], kernel: Any, device: str) -> inputs.Drawn:
    return inputs.with_parameters(make(), kernel, device)


def _maker(
    check: schema.Check, combination: Mapping[str, Any], make: Callable[..., Any] | None, seed: int, device: str
) -> Callable[[], inputs.Drawn]:
    dtype = inputs.dtype_named(combination["dtype"]) if "dtype" in combination else None
    if make is not None:
        return functools.partial(inputs.from_function, make, seed, device, dtype)
    return functools.partial(inputs.draw, _given(check, combination), seed, device)


def _given(check: schema.Check, combination: Mapping[str, Any]) -> tuple[inputs.Input, ...]:
    named = {**check.dims, **{key: value for key, value in combination.items() if key not in schema.AXES}}
    return tuple(_input(name, entry, named, combination) for name, entry in (check.inputs or {}).items())


def _input(name: str, given: schema.Input, named: Mapping[str, Any], combination: Mapping[str, Any]) -> inputs.Input:
    if given.group is None:
        return _single(name, given, named, combination)
    return inputs.GroupInput(name, _tree(name, given, named, combination))


def _tree(name: str, given: schema.Input, named: Mapping[str, Any], combination: Mapping[str, Any]) -> Any:
    if given.group is None:
        return _single(name, given, named, combination)
    kind, items = given.group
    made = {key: _tree(f"{name}[{key!r}]", item, named, combination) for key, item in items.items()}
    return made if kind == "dict" else (list if kind == "list" else tuple)(made.values())


def _single(
    name: str, given: schema.Input, named: Mapping[str, Any], combination: Mapping[str, Any]
) -> inputs.TensorInput | inputs.PlainInput:
    if given.plain:
        return inputs.PlainInput(name, combination.get(name, given.value))
    dtype = given.dtype or "float32"
    if dtype in schema.FLOAT_DTYPES:
        dtype = combination.get("dtype", dtype)
    shape: tuple[int, ...] | list[int]
    if given.values == inputs.EXHAUSTIVE:
        shape = (count(inputs.dtype_named(dtype)),)
    elif given.shape is None:
        shape = schema.shape_of_list(given.values)
    else:
        shape = [_size(size, named) for size in given.shape]
    return inputs.TensorInput(
        name,
        tuple(shape),
        inputs.dtype_named(dtype),
        "normal" if given.values is None else given.values,
        None if given.below is None else _size(given.below, named),
        given.requires_grad,
    )


def _sizes(check: schema.Check, combination: Mapping[str, Any], seed: int, device: str) -> tuple[Size, ...]:
    """Return the sizes for the battery: of the `dims` that the matrix leaves alone and no listed values pin."""
    given = (check.inputs or {}).values()
    pinned = {size for one in given if schema.written_out(one.values) for size in one.shape or ()}
    free = {name: size for name, size in check.dims.items() if name not in combination and name not in pinned}
    return sizes.of_names(free, lambda changed: _maker(check, {**combination, **changed}, None, seed, device))


def _size(size: int | str, named: Mapping[str, Any]) -> int:
    return int(named[size]) if isinstance(size, str) else size
