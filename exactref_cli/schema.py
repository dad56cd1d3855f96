"""What a spec file may say: the models that it is read into, and what each value is wanted to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from kernels_core.battery import ITEMS
from kernels_core.errors import nearest
from kernels_core.profiles import AUTO, PROFILES, resolve
from kernels_core.profiles.knobs import ACCUMULATORS, BOUNDS
from kernels_core.profiles.knobs import INPUTS as MATMUL_INPUTS

FLOAT8_DTYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
FLOAT_DTYPES = ("float64", "float32", "bfloat16", "float16", *FLOAT8_DTYPES, "complex64", "complex128")
INTEGER_DTYPES = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = (*FLOAT_DTYPES, *INTEGER_DTYPES, "bool")
FAMILIES = (
    *("normal", "uniform", "positive", "zeros", "zero_rows", "ones", "offset", "huge", "tiny"),
    *("subnormals", "outliers", "ties"),
    *("signed_zeros", "constants", "cancelling", "one_hot", "probabilities", "masked", "mixed"),
    *("index", "mask", "exhaustive"),
)
GROUPS = ("list", "tuple", "dict")  # keys of an input that holds several
NARROWER = ("float32", "tf32", *FLOAT_DTYPES[2:6])  # what a result may be too coarse to tell apart
AXES = ("dtype", "device", "seed", "profile")  # matrix keys besides dims and plain inputs


def _refuse(wanted: str, found: Any, hint: str = "") -> PydanticCustomError:
    text = f"wanted {wanted}, found {shown(found)}{hint}"
    return PydanticCustomError("wanted", "{text}", {"text": text})


def shown(found: Any) -> str:
    """Return a value as messages show it."""
    text = "nothing" if found is None else repr(found)
    return text if len(text) <= 60 else text[:57] + "..."


def one_of(known: tuple[str, ...]) -> Callable[[Any], str]:
    """Return a check that a value is one of the known words."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            hint = nearest(value, known) if isinstance(value, str) else ""
            raise _refuse("one of " + ", ".join(known), value, hint)
        return value

    return check


def require_size(value: Any) -> int:
    """Return a size, refuse anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _refuse("a size (a whole number, 0 or more)", value)
    return value


def _size_or_name(value: Any) -> int | str:
    if isinstance(value, str) and value.isidentifier():
        return value
    if isinstance(value, str):
        raise _refuse("a size or the name of one", value)
    return require_size(value)


def _target(value: Any) -> str:
    if not isinstance(value, str) or not all(value.rpartition(":")):
        raise _refuse("module:attr or path.py:attr", value)
    return value


def _values(value: Any) -> str | list[Any] | float:
    return value if written_out(value) else one_of(FAMILIES)(value)


def written_out(values: Any) -> bool:
    """Return True for nested lists of numbers, or the one number of a tensor without dimensions: no family."""
    return isinstance(values, (list, int, float))


_BATTERY_WORDS = (*ITEMS, "values", *(f"-{name}" for name in (*ITEMS, "values")))


def _battery(value: Any) -> str | tuple[str, ...]:
    if value in ("none", "all"):
        return str(value)
    if not isinstance(value, list):
        raise _refuse("all, none or a list of items", value, nearest(str(value), ("all", "none")))
    return tuple(one_of(_BATTERY_WORDS)(name) for name in value)


def require_text(value: Any) -> str:
    """Return a text, refuse anything else."""
    if not isinstance(value, str):
        raise _refuse("text", value)
    return value


def require_profile(value: Any) -> str | dict[str, Any]:
    """Return a profile as specs write it, refuse what is neither text nor a mapping; what it says is read later."""
    if not isinstance(value, (str, dict)):
        raise _refuse("the name of a profile, or a mapping of a name and knobs", value)
    return value


def profile_text(value: str | dict[str, Any]) -> str:
    """Return a profile of the matrix in one word, as commands write it."""
    return value if isinstance(value, str) else resolve(value).title


def _profile_schema() -> dict[str, Any]:
    knobs: dict[str, Any] = {
        "name": {"enum": [*PROFILES, AUTO]},
        "accumulate": {"enum": list(ACCUMULATORS)},
        "split_k": {"type": "integer", "minimum": 1},
        "flush_subnormals": {"type": "boolean"},
        "function_ulp": {"type": ["number", "object"]},
        "matmul_input": {"enum": list(MATMUL_INPUTS)},
        "order": {"type": "string", "pattern": "^(any|sequential|pairwise|blocked:[1-9][0-9]*)$"},
    }
    return {
        "anyOf": [
            {"type": "string", "pattern": f"^({'|'.join([*PROFILES, AUTO])})(,[a-z_]+=[^,]+)*$"},
            {"type": "object", "properties": knobs, "additionalProperties": False},
        ]
    }


def shape_of_list(values: Any) -> tuple[int, ...]:
    """Return the shape of nested lists of numbers.

    Raises:
        ValueError: ragged, or holds something that is no number.
    """
    if not isinstance(values, list):
        if isinstance(values, (int, float)):
            return ()
        raise ValueError(f"wanted numbers, found {shown(values)}")
    shapes = {shape_of_list(inner) for inner in values}
    if len(shapes) > 1:
        raise ValueError("wanted lists of one length, found several")
    return (len(values), *(shapes.pop() if shapes else ()))


def _choice(*known: str) -> Any:
    return Annotated[str, PlainValidator(one_of(known)), WithJsonSchema({"enum": list(known)})]


Size = Annotated[int, PlainValidator(require_size), WithJsonSchema({"type": "integer", "minimum": 0})]
SizeOrName = Annotated[int | str, PlainValidator(_size_or_name), WithJsonSchema({"type": ["integer", "string"]})]
Target = Annotated[str, PlainValidator(_target), WithJsonSchema({"type": "string", "pattern": "^.+:.+$"})]
Values = Annotated[
    str | list[Any] | float, PlainValidator(_values), WithJsonSchema({"type": ["string", "array", "number"]})
]
Profile = Annotated[str | dict[str, Any], PlainValidator(require_profile), WithJsonSchema(_profile_schema())]
Battery = Annotated[
    str | tuple[str, ...],
    PlainValidator(_battery),
    WithJsonSchema({"anyOf": [{"enum": ["none", "all"]}, {"type": "array", "items": {"enum": list(_BATTERY_WORDS)}}]}),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Input(_Strict):
    """One input: a tensor drawn at random or with given values, a plain value, or a list, tuple or dict of inputs."""

    shape: list[SizeOrName] | None = None
    dtype: _choice(*DTYPES) = None  # type: ignore[valid-type]
    requires_grad: bool | None = None
    values: Values | None = None
    below: SizeOrName | None = None
    value: Any = None
    items_of_list: list[Input] | None = Field(None, alias="list")
    items_of_tuple: list[Input] | None = Field(None, alias="tuple")
    items_of_dict: dict[str, Input] | None = Field(None, alias="dict")

    @property
    def group(self) -> tuple[str, dict[str | int, Input]] | None:
        """The kind of a group, "list", "tuple" or "dict", with its items by place or key; None for a single input."""
        for kind in GROUPS:
            items = getattr(self, f"items_of_{kind}")
            if items is not None:
                return kind, dict(items if kind == "dict" else enumerate(items))
        return None

    @property
    def written(self) -> set[str]:
        """The keys as the spec writes them."""
        return {type(self).model_fields[name].alias or name for name in self.model_fields_set}

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
    profile: Profile | None = None
    bound: _choice(*BOUNDS) = None  # type: ignore[valid-type]
    battery: Battery = "none"
    nondet_tol: Annotated[float, Field(ge=0)] | None = None
    mode: _choice("train", "eval") = None  # type: ignore[valid-type]
    kinks: _choice("accept", "convention") = "accept"  # type: ignore[valid-type]
    require_sensitivity: _choice(*NARROWER) = None  # type: ignore[valid-type]
    expect: _choice("covered", "violated", "raised") = "covered"  # type: ignore[valid-type]

    def leaves(self) -> Iterator[tuple[tuple[str | int, ...], Input]]:
        """Yield every single input, items of groups one by one, with its place below `inputs`."""
        for name, given in (self.inputs or {}).items():
            yield from _leaves((name,), given)

    @property
    def title(self) -> str:
        """The name, or the function's where none is given."""
        return self.name or self.function


def _leaves(place: tuple[str | int, ...], given: Input) -> Iterator[tuple[tuple[str | int, ...], Input]]:
    if given.group is None:
        yield place, given
        return
    kind, items = given.group
    for key, item in items.items():
        yield from _leaves((*place, kind, key), item)


class Spec(_Strict):
    """A whole spec file."""

    version: Literal[1]
    checks: list[Check]
