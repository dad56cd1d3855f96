"""Templates of shapes such as ("MK", "KN"), one letter per dimension, likely ones first."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from exactref_cli.inputs import MASK, Input, PlainInput, TensorInput
from exactref_cli.signature import Parameter

SIZES = {"M": 16, "K": 32, "N": 8, "P": 24, "B": 2, "C": 4, "L": 12, "H": 6, "W": 5, "O": 3, "k": 3}
SQUARE = {**SIZES, "M": 16, "K": 16, "N": 16, "P": 16, "L": 16, "C": 8, "H": 8, "W": 8}
LIMIT = 400  # candidates of the free search
WHOLE = ("index", MASK)  # families of whole numbers and booleans
_VECTORS = re.compile(r"weight|bias|gamma|beta|mean|var|std|scale|shift|^[wbg]$", re.IGNORECASE)  # their names
MOST_MIXED = 5  # tensors beside the first, of which some may be vectors
INTEGER = "#"  # "#M" is an integer vector

# Templates whose integers are where the names say so, those without integers, and the others.
KINDS = ("named", "floating", "mixed")


@dataclasses.dataclass(frozen=True)
class Given:
    """What the user fixed by parameter name.

    Attributes:
        shapes: of tensors.
        values: nested lists, or plain values.
        families: names of value families.
    """

    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    families: Mapping[str, str] = dataclasses.field(default_factory=dict)


def completed(
    parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, plain: bool, sizes: Mapping[str, int], kind: str
) -> Iterator[tuple[Input, ...]]:
    """Yield the templates of one kind that agree with what is given; items of one list are alike at first."""
    fixed, open_ = _fixed(parameters, given, plain)
    units = [_unit(p) for p in open_]
    for keys in dict.fromkeys((tuple(units), tuple(p.name for p in open_))):
        firsts = [open_[keys.index(key)] for key in dict.fromkeys(keys)]
        for template in [*_templates(len(firsts)), *_of_given(firsts, given)]:
            if _kind(firsts, template) != kind or _gives_a_row_to_a_parameter(firsts, template):
                continue
            roles = dict(zip(dict.fromkeys(keys), template, strict=True))
            whole = [roles[key] for key in keys]
            if (bound := _bind(open_, whole, given, sizes)) is not None:
                yield _inputs(parameters, fixed, open_, whole, bound, given, dtype)


def _gives_a_row_to_a_parameter(open_: Sequence[Parameter], template: Sequence[str]) -> bool:
    """Return True where, beside vectors, a weight or a running mean has the whole shape, which broadcasts as well."""
    if len(set(template)) != 2 or "K" not in template or template[0] not in ("MK", "BMK"):
        return False
    others = zip(open_[1:], template[1:], strict=True)
    return any(role == template[0] and _VECTORS.search(p.name) for p, role in others)


def _unit(p: Parameter) -> str:
    """Return "xs" for the items of a list that no other list holds, the name for any other parameter."""
    base, bracket, rest = p.name.partition("[")
    return base if bracket and rest[:-1].isdecimal() and p.alike else p.name


def _kind(open_: Sequence[Parameter], template: Sequence[str]) -> str:
    """Return the kind of a template; integers are named as such beside matrices, one for each row, as labels are.

    Integers of other shapes would do in any loss of two tensors of numbers.
    """
    integers = [role.startswith(INTEGER) for role in template]
    most = [max((len(role.lstrip(INTEGER)) for role in template if role.startswith(INTEGER) == kind), default=0)
            for kind in (False, True)]  # fmt: skip
    if integers == [p.looks_integer for p in open_] and (not any(integers) or all(integers) or most[1] <= 1 < most[0]):
        return "named"
    return "mixed" if any(integers) else "floating"


def free(
    parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, sizes: Mapping[str, int], integers: bool
) -> Iterator[tuple[Input, ...]]:
    """Yield every combination of common shapes, up to a limit, with integers or without."""
    fixed, open_ = _fixed(parameters, given, plain=True)
    roles = ("MK", "K", "M", "N", "KN", "NK", "MN", *("#M", "#N", "#MK") * integers)
    for template in itertools.islice(itertools.product(roles, repeat=len(open_)), LIMIT):
        bound = _bind(open_, template, given, sizes)
        if bound is not None:
            yield _inputs(parameters, fixed, open_, template, bound, given, dtype)


def _fixed(parameters: Sequence[Parameter], given: Given, plain: bool) -> tuple[dict[str, Any], list[Parameter]]:
    """Return the plain values by name, and the parameters that are tensors to be shaped."""
    fixed: dict[str, Any] = {}
    for p in parameters:
        if p.name in given.values and not isinstance(given.values[p.name], list):
            fixed[p.name] = given.values[p.name]
        elif p.name in given.values or p.name in given.shapes:
            continue
        elif p.has_default and p.name not in given.families:
            fixed[p.name] = p.default
        elif plain and p.guess is not None:
            fixed[p.name] = p.guess
    return fixed, [p for p in parameters if p.name not in fixed]


def _templates(count: int) -> Iterator[tuple[str, ...]]:
    """Yield the likely templates for `count` tensors, without integers and then with one of them last or first."""
    yield from _floating(count)
    for integer in ("#M", "#N", "#MK", "#MN"):
        tensors = [rest for rest in _floating(count - 1) if count > 1 and "" not in rest]
        yield from ((*rest, integer) for rest in tensors)
        yield from ((integer, *rest) for rest in tensors)
    if count == 3:
        yield "MK", "N", "#N"


def _floating(count: int) -> Iterator[tuple[str, ...]]:
    if count < 1:
        if count == 0:
            yield ()
        return
    rest = count - 1
    if count == 2:
        yield "MK", "NK"  # before equal shapes, which a product with a transposed matrix accepts too
    yield ("MK",) * count
    if count > 1:
        yield tuple("MKNPBCLHO"[i : i + 2] for i in range(min(count, 8)))[:count]  # a chain of matrices
        yield "MK", "NK", *("N",) * (rest - 1)
        yield "MK", "KN", *("N",) * (rest - 1)
        yield from _vectors("MK", "K", rest)
        yield "MK", *("M",) * rest
        yield from _vectors("BMK", "K", rest)
        yield "BMK", "BKN", *("N",) * (rest - 1)
        yield "BCL", *("C",) * rest
        yield "BCHW", *("C",) * rest
        yield "BCL", "OCk", *("O",) * (rest - 1)
        yield "BCHW", "OCkk", *("O",) * (rest - 1)
    for shape in ("BMK", "BCL", "BCHW", "K"):
        yield (shape,) * count
    if count == 1:
        yield ("",)


def _vectors(whole: str, vector: str, rest: int) -> Iterator[tuple[str, ...]]:
    """Yield (whole, ...) with vectors for some of the others, as few of them as can be: a residual is no vector."""
    for count in range(1, rest) if rest <= MOST_MIXED else ():
        for places in itertools.combinations(range(rest - 1, -1, -1), count):
            yield whole, *(vector if place in places else whole for place in range(rest))
    yield whole, *(vector,) * rest


def _of_given(open_: Sequence[Parameter], given: Given) -> Iterator[tuple[str, ...]]:
    """Yield templates for shapes that are all given, whatever they are: floating, then with integers."""
    if open_ and all(_given_shape(p, given) is not None for p in open_):
        yield from itertools.islice(itertools.product(("*", "#*"), repeat=len(open_)), LIMIT)


def _given_shape(p: Parameter, given: Given) -> tuple[int, ...] | None:
    if p.name in given.shapes:
        return given.shapes[p.name]
    return _shape_of(given.values[p.name]) if p.name in given.values else None


def _shape_of(values: Any) -> tuple[int, ...]:
    return tuple(torch.tensor(values).shape)


def _bind(
    open_: Sequence[Parameter], template: Sequence[str], given: Given, sizes: Mapping[str, int]
) -> list[tuple[int, ...]] | None:
    """Return the shapes of a template with its letters bound by the given shapes, None where they contradict it."""
    bound: dict[str, int] = {}
    for p, role in zip(open_, template, strict=True):
        shape, letters = _given_shape(p, given), role.removeprefix(INTEGER)
        if not _of_family(given.families.get(p.name), role.startswith(INTEGER)):
            return None
        if shape is None or letters == "*":
            continue
        if len(shape) != len(letters) or any(bound.setdefault(k, n) != n for k, n in zip(letters, shape, strict=True)):
            return None
    sizes = {**sizes, **bound}
    return [_sizes(_given_shape(p, given), role, sizes) for p, role in zip(open_, template, strict=True)]


def _of_family(family: str | None, integer: bool) -> bool:
    """Return True where a family of values, if one was asked for, is of the kind of this role."""
    return family is None or (family in WHOLE) == integer


def _sizes(shape: tuple[int, ...] | None, role: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return shape if shape is not None else tuple(sizes[letter] for letter in role.removeprefix(INTEGER))


def _inputs(
    parameters: Sequence[Parameter],
    fixed: Mapping[str, Any],
    open_: Sequence[Parameter],
    template: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    given: Given,
    dtype: torch.dtype,
) -> tuple[Input, ...]:
    made: dict[str, Input] = {name: PlainInput(name, value) for name, value in fixed.items()}
    for p, role, shape in zip(open_, template, shapes, strict=True):
        cast = torch.int64 if role.startswith(INTEGER) else dtype
        cast = torch.bool if given.families.get(p.name) == MASK else cast
        made[p.name] = TensorInput(p.name, shape, cast, _values(p, given))
    return tuple(made[p.name] for p in parameters)


def _values(p: Parameter, given: Given) -> str | list[Any]:
    return given.values[p.name] if p.name in given.values else given.families.get(p.name, "normal")
