"""A spec file: what it may say, and every mistake in it at once, each with file and line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

from exactref_cli import yaml_lines
from kernels_core.errors import SpecError, nearest

FLOAT_DTYPES = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
INTEGER_DTYPES = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = (*FLOAT_DTYPES, *INTEGER_DTYPES, "bool")
FAMILIES = ("normal", "uniform", "positive", "zeros", "ones", "index", "mask")
AXES = ("dtype", "device", "seed", "profile")  # matrix keys besides dims and plain inputs

_TYPES = {
    "int_type": "a whole number", "string_type": "text", "bool_type": "true or false", "list_type": "a list",
    "dict_type": "a mapping", "model_type": "a mapping", "model_attributes_type": "a mapping",
}  # fmt: skip


def _refuse(wanted: str, found: Any, hint: str = "") -> PydanticCustomError:
    text = f"wanted {wanted}, found {_shown(found)}{hint}"
    return PydanticCustomError("wanted", "{text}", {"text": text})


def _shown(found: Any) -> str:
    text = "nothing" if found is None else repr(found)
    return text if len(text) <= 60 else text[:57] + "..."


def _one_of(known: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            hint = nearest(value, known) if isinstance(value, str) else ""
            raise _refuse("one of " + ", ".join(known), value, hint)
        return value

    return check


def _size(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _refuse("a size (a whole number, 0 or more)", value)
    return value


def _size_or_name(value: Any) -> int | str:
    if isinstance(value, str) and value.isidentifier():
        return value
    if isinstance(value, str):
        raise _refuse("a size or the name of one", value)
    return _size(value)


def _target(value: Any) -> str:
    if not isinstance(value, str) or not all(value.rpartition(":")):
        raise _refuse("module:attr or path.py:attr", value)
    return value


def _values(value: Any) -> str | list[Any]:
    return value if isinstance(value, list) else _one_of(FAMILIES)(value)


def _battery(value: Any) -> str:
    if value not in ("none", "all"):
        raise _refuse("none or all", value)
    return str(value)


def _choice(*known: str) -> Any:
    return Annotated[str, PlainValidator(_one_of(known)), WithJsonSchema({"enum": list(known)})]


Size = Annotated[int, PlainValidator(_size), WithJsonSchema({"type": "integer", "minimum": 0})]
SizeOrName = Annotated[int | str, PlainValidator(_size_or_name), WithJsonSchema({"type": ["integer", "string"]})]
Target = Annotated[str, PlainValidator(_target), WithJsonSchema({"type": "string", "pattern": "^.+:.+$"})]
Values = Annotated[str | list[Any], PlainValidator(_values), WithJsonSchema({"type": ["string", "array"]})]
Battery = Annotated[str, PlainValidator(_battery), WithJsonSchema({"enum": ["none", "all"]})]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Input(_Strict):
    """One input: a tensor drawn at random (shape), with given values, or a plain value."""

    shape: list[SizeOrName] | None = None
    dtype: _choice(*DTYPES) = None  # type: ignore[valid-type]
    requires_grad: bool | None = None
    values: Values | None = None
    below: SizeOrName | None = None
    value: Any = None

    @property
    def plain(self) -> bool:
        """True for a plain value, which is not a tensor."""
        return "value" in self.model_fields_set


class Check(_Strict):
    """One entry of `checks`."""

    name: str | None = None
    function: Target
    reference: Target | None = None
    reference_backward: Target | None = None
    surrogate: bool = False
    device: str = "cpu"
    seed: Size = 0
    dims: dict[str, Size] = {}
    inputs: dict[str, Input] | None = None
    inputs_from: Target | None = None
    matrix: dict[str, list[Any]] = {}
    profile: str | None = None
    battery: Battery = "none"
    kinks: _choice("accept", "convention") = "accept"  # type: ignore[valid-type]
    expect: _choice("covered", "violated", "raised") = "covered"  # type: ignore[valid-type]

    @property
    def title(self) -> str:
        """The name, or the function's where none is given."""
        return self.name or self.function


class Spec(_Strict):
    """A whole spec file."""

    version: Literal[1]
    checks: list[Check]


@dataclasses.dataclass(frozen=True)
class SpecFile:
    """A valid spec with the place it came from."""

    path: Path
    checks: tuple[Check, ...]
    located: yaml_lines.Located

    def where(self, *path: str | int) -> str:
        """Return "file:line" of a value."""
        return f"{self.path}:{self.located.line(path)}"


def read(path: Path) -> SpecFile:
    """Return the spec of a file.

    Raises:
        SpecError: with every mistake of the file, each as `file:line: what was wanted, what was found`.
    """
    located = _parse(path)
    mistakes = [(located.line(place), _name(place), text) for place, text in _mistakes(located.data)]
    mistakes += [(line, _name(place), "this key is written twice") for place, line in located.duplicates]
    if mistakes:
        raise SpecError(f"{path}:{line}: {name}: {text}" for line, name, text in sorted(mistakes))
    checks = tuple(Check.model_validate(check) for check in located.data["checks"])
    return SpecFile(path, checks, located)


def _parse(path: Path) -> yaml_lines.Located:
    try:
        return yaml_lines.parse(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError([f"{path}:{line}: not YAML: {error.problem}"]) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError([f"{path}:1: not YAML: {error}"]) from error
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror}"]) from error


def _name(place: yaml_lines.Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.lstrip(".") or "the file"


def _mistakes(data: Any) -> Iterator[tuple[yaml_lines.Path, str]]:
    if not isinstance(data, dict):
        yield (), f"wanted a mapping with version and checks, found {_shown(data)}"
        return
    try:
        Spec.model_validate(data)
    except ValidationError as error:
        yield from (_translated(detail) for detail in error.errors())
    checks = data.get("checks")
    if checks == []:
        yield ("checks",), "wanted at least one check, found none"
    valid = dict(_valid_checks(checks if isinstance(checks, list) else []))
    for place, check in valid.items():
        yield from ((("checks", place, *path), text) for path, text in _contradictions(check))
    yield from _repeated_names(valid)


def _translated(detail: ErrorDetails) -> tuple[yaml_lines.Path, str]:
    place, kind = tuple(detail["loc"]), detail["type"]
    if kind == "extra_forbidden":
        return place, f"unknown key{nearest(str(place[-1]), _keys_at(place[:-1]))}"
    if kind == "missing":
        return place[:-1], f'wanted a key "{place[-1]}", found none'
    if kind == "literal_error":
        return place, f"wanted {detail['ctx']['expected']}, found {_shown(detail['input'])}"
    if kind in _TYPES:
        return place, f"wanted {_TYPES[kind]}, found {_shown(detail['input'])}"
    return place, detail["msg"]


def _keys_at(place: yaml_lines.Path) -> Iterable[str]:
    if "inputs" in place:
        return Input.model_fields
    return Check.model_fields if place else Spec.model_fields


def _valid_checks(checks: list[Any]) -> Iterator[tuple[int, Check]]:
    for place, check in enumerate(checks):
        try:
            yield place, Check.model_validate(check)
        except ValidationError:
            continue


def _repeated_names(checks: Mapping[int, Check]) -> Iterator[tuple[yaml_lines.Path, str]]:
    seen: dict[str, int] = {}
    for place, check in checks.items():
        if check.title in seen:
            yield ("checks", place, "name"), f"wanted a name of its own, found {check.title!r} again"
        seen[check.title] = place


def _contradictions(check: Check) -> Iterator[tuple[yaml_lines.Path, str]]:
    """Yield what pydantic cannot see: keys that do not fit each other."""
    if (check.inputs is None) == (check.inputs_from is None):
        found = "neither" if check.inputs is None else "both"
        yield (), f'wanted either "inputs" or "inputs_from", found {found}'
    if check.surrogate and check.reference_backward is None:
        yield ("surrogate",), 'wanted a "reference_backward" that is the surrogate, found none'
    if check.inputs_from is not None and check.dims:
        yield ("dims",), '"dims" belong to "inputs"; "inputs_from" chooses its own shapes'
    for name, given in (check.inputs or {}).items():
        yield from ((("inputs", name, *path), text) for path, text in _input_contradictions(given, check))
    yield from _matrix_contradictions(check)


def _input_contradictions(given: Input, check: Check) -> Iterator[tuple[yaml_lines.Path, str]]:
    dtype = given.dtype or "float32"
    if given.plain:
        extra = sorted(given.model_fields_set - {"value"})
        if extra:
            yield (extra[0],), f'"value" is a plain value and stands alone, found "{extra[0]}" beside it'
        return
    known = {*check.dims, *check.matrix} - set(AXES)
    for place, size in enumerate(given.shape or []):
        if isinstance(size, str) and size not in known:
            yield ("shape", place), f"no size is called {size!r}{nearest(size, known)}"
    if isinstance(given.values, list):
        yield from _listed_contradictions(given.values, given.shape)
    elif given.shape is None:
        yield (), 'wanted "shape", a list of "values" or a plain "value", found none'
    elif (given.values == "index" and dtype not in INTEGER_DTYPES) or (given.values == "mask" and dtype != "bool"):
        yield ("values",), f"wanted values for {dtype}, found {given.values!r}"
    if isinstance(given.below, str) and given.below not in known:
        yield ("below",), f"no size is called {given.below!r}{nearest(given.below, known)}"
    if given.requires_grad and dtype not in FLOAT_DTYPES:
        yield ("requires_grad",), f"wanted a floating dtype, found {dtype}"


def _listed_contradictions(values: list[Any], shape: list[int | str] | None) -> Iterator[tuple[yaml_lines.Path, str]]:
    try:
        found = shape_of_list(values)
    except ValueError as error:
        yield ("values",), str(error)
        return
    wanted = shape if shape is not None else list(found)
    sizes_differ = any(isinstance(w, int) and w != f for w, f in zip(wanted, found, strict=False))
    if len(wanted) != len(found) or sizes_differ:
        yield ("values",), f"wanted numbers of shape {wanted}, found shape {list(found)}"


def shape_of_list(values: Any) -> tuple[int, ...]:
    """Return the shape of nested lists of numbers.

    Raises:
        ValueError: ragged, or holds something that is no number.
    """
    if not isinstance(values, list):
        if isinstance(values, (int, float)):
            return ()
        raise ValueError(f"wanted numbers, found {_shown(values)}")
    shapes = {shape_of_list(inner) for inner in values}
    if len(shapes) > 1:
        raise ValueError("wanted lists of one length, found several")
    return (len(values), *(shapes.pop() if shapes else ()))


def _matrix_contradictions(check: Check) -> Iterator[tuple[yaml_lines.Path, str]]:
    inputs = check.inputs or {}
    sizes = {s for given in inputs.values() for s in [*(given.shape or []), given.below] if isinstance(s, str)}
    plain = {name for name, given in inputs.items() if given.plain}
    known = [*AXES, *sorted(sizes), *sorted(plain)]
    for axis, values in check.matrix.items():
        if axis not in known:
            yield ("matrix", axis), f"wanted one of {', '.join(known)}, found {axis!r}{nearest(axis, known)}"
        elif not values:
            yield ("matrix", axis), "wanted at least one value, found none"
        elif axis not in plain:
            yield from _axis_contradictions(axis, values)


def _axis_contradictions(axis: str, values: list[Any]) -> Iterator[tuple[yaml_lines.Path, str]]:
    checkers: dict[str, Callable[[Any], Any]] = {"dtype": _one_of(FLOAT_DTYPES), "device": _text, "profile": _text}
    check = checkers[axis] if axis in checkers else _size
    for place, value in enumerate(values):
        try:
            check(value)
        except PydanticCustomError as error:
            yield ("matrix", axis, place), str(error)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _refuse("text", value)
    return value
