"""Every mistake of a spec at once: what pydantic finds, in our words, and what keys that contradict each other say."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from exactref_cli import yaml_lines
from exactref_cli.schema import (
    AXES,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    Check,
    Input,
    Spec,
    one_of,
    require_profile,
    require_size,
    require_text,
    shape_of_list,
    shown,
    written_out,
)
from kernels_core.errors import nearest

_TYPES = {
    "int_type": "a whole number", "string_type": "text", "bool_type": "true or false", "list_type": "a list",
    "dict_type": "a mapping", "model_type": "a mapping", "model_attributes_type": "a mapping",
}  # fmt: skip


def find(data: Any) -> Iterator[tuple[yaml_lines.Path, str]]:
    """Yield every mistake of a spec: where it stands, and what was wanted and found."""
    if not isinstance(data, dict):
        yield (), f"wanted a mapping with version and checks, found {shown(data)}"
        return
    try:
        Spec.model_validate(data)
    except ValidationError as error:
        yield from (_translated(detail) for detail in error.errors())
    checks = data.get("checks")
    if checks == []:
        yield ("checks",), "wanted at least one check, found none"
    legible = {}
    for place, raw in enumerate(checks if isinstance(checks, list) else []):
        wrong = _wrong_places(raw)
        check = _without(raw, wrong)
        if check is not None:
            legible[place] = check
            yield from ((("checks", place, *path), text) for path, text in _further(check, wrong))
    yield from _repeated_names(legible)


def _translated(detail: ErrorDetails) -> tuple[yaml_lines.Path, str]:
    place, kind = tuple(detail["loc"]), detail["type"]
    if kind == "extra_forbidden":
        return place, f"unknown key{nearest(str(place[-1]), _keys_at(place[:-1]))}"
    if kind == "missing":
        return place[:-1], f'wanted a key "{place[-1]}", found none'
    if kind == "literal_error":
        return place, f"wanted {detail['ctx']['expected']}, found {shown(detail['input'])}"
    if kind in _TYPES:
        return place, f"wanted {_TYPES[kind]}, found {shown(detail['input'])}"
    return place, detail["msg"]


def _keys_at(place: yaml_lines.Path) -> Iterable[str]:
    if "inputs" in place:
        return [field.alias or name for name, field in Input.model_fields.items()]
    return Check.model_fields if place else Spec.model_fields


def _wrong_places(check: Any) -> list[yaml_lines.Path]:
    try:
        Check.model_validate(check)
    except ValidationError as error:
        return [tuple(detail["loc"]) for detail in error.errors()]
    return []


def _without(check: Any, wrong: Sequence[yaml_lines.Path]) -> Check | None:
    """Return a check without the values that are wrong in themselves, None where nothing can be read."""
    if not isinstance(check, dict):
        return None
    kept = {"function": "unread:function", **copy.deepcopy(check)}
    for place in wrong:
        _drop(kept, place)
    kept.setdefault("function", "unread:function")
    try:
        return Check.model_validate(kept)
    except ValidationError:
        return None


def _drop(data: Any, place: yaml_lines.Path) -> None:
    """Remove the value at `place`, or the list that it stands in."""
    for part, after in zip(place, (*place[1:], None), strict=True):
        if not isinstance(data, dict):
            return
        if after is None or not isinstance(data.get(part), dict):
            data.pop(part, None)
            return
        data = data[part]


def _further(check: Check, wrong: Sequence[yaml_lines.Path]) -> Iterator[tuple[yaml_lines.Path, str]]:
    """Yield the contradictions that do not follow from what is wrong already."""
    if any(place and place[0] in ("dims", "matrix") for place in wrong):
        return  # sizes could not be read, so nothing can be said about their names
    for path, text in _contradictions(check):
        if not any(place[: len(path)] == path for place in wrong if place != ("function",)):
            yield path, text


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
        yield from _group_contradictions(("inputs", name), given)
    for place, given in check.leaves():
        yield from ((("inputs", *place, *path), text) for path, text in _input_contradictions(given, check))
    yield from _matrix_contradictions(check)


def _group_contradictions(place: yaml_lines.Path, given: Input) -> Iterator[tuple[yaml_lines.Path, str]]:
    if given.group is None:
        return
    kind, items = given.group
    if extra := sorted(given.written - {kind}):
        yield (*place, extra[0]), f'"{kind}" holds inputs of their own and stands alone, found "{extra[0]}" beside it'
    for key, item in items.items():
        yield from _group_contradictions((*place, kind, key), item)


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
    if written_out(given.values):
        yield from _listed_contradictions(given.values, given.shape)
    elif given.values == "exhaustive":
        if given.shape is not None:
            yield ("shape",), "all values of the dtype have the shape of their number: leave it out"
    elif given.shape is None:
        yield (), 'wanted "shape", a list of "values", a plain "value", or a "list", "tuple" or "dict", found none'
    elif (given.values == "index" and dtype not in INTEGER_DTYPES) or (given.values == "mask" and dtype != "bool"):
        yield ("values",), f"wanted values for {dtype}, found {given.values!r}"
    if isinstance(given.below, str) and given.below not in known:
        yield ("below",), f"no size is called {given.below!r}{nearest(given.below, known)}"
    if given.requires_grad and dtype not in FLOAT_DTYPES:
        yield ("requires_grad",), f"wanted a floating dtype, found {dtype}"


def _listed_contradictions(values: Any, shape: list[int | str] | None) -> Iterator[tuple[yaml_lines.Path, str]]:
    try:
        found = shape_of_list(values)
    except ValueError as error:
        yield ("values",), str(error)
        return
    wanted = shape if shape is not None else list(found)
    sizes_differ = any(isinstance(w, int) and w != f for w, f in zip(wanted, found, strict=False))
    if len(wanted) != len(found) or sizes_differ:
        yield ("values",), f"wanted numbers of shape {wanted}, found shape {list(found)}"


def _matrix_contradictions(check: Check) -> Iterator[tuple[yaml_lines.Path, str]]:
    sizes = {s for _, given in check.leaves() for s in [*(given.shape or []), given.below] if isinstance(s, str)}
    plain = {name for name, given in (check.inputs or {}).items() if given.plain}
    known = [*AXES, *sorted(sizes), *sorted(plain)]
    for axis, values in check.matrix.items():
        if axis not in known:
            yield ("matrix", axis), f"wanted one of {', '.join(known)}, found {axis!r}{nearest(axis, known)}"
        elif not values:
            yield ("matrix", axis), "wanted at least one value, found none"
        elif axis not in plain:
            yield from _axis_contradictions(axis, values)


def _axis_contradictions(axis: str, values: list[Any]) -> Iterator[tuple[yaml_lines.Path, str]]:
    checkers: dict[str, Callable[[Any], Any]] = {
        "dtype": one_of(FLOAT_DTYPES),
        "device": require_text,
        "profile": require_profile,
    }
    check = checkers[axis] if axis in checkers else require_size
    for place, value in enumerate(values):
        try:
            check(value)
        except PydanticCustomError as error:
            yield ("matrix", axis, place), str(error)
