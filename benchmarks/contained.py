"""One step of a program against FLINT: on exact operands, the exact value lies within |mid - exact| <= rad.

`rad` is the rule's own bound with every format float64, and 2^-26 of its bound in the step's format where the filter
relies on that (filter/run.py): every format float32 or narrower, and no rule that says it does not hold. Steps of
float64 are also evaluated in double-double, where the exact value lies within |mid + low - exact| <= rad.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotRationalError, NotSeparatedError, Numbers
from kernels_core.exact.tier import Call, flat_array
from kernels_core.filter.arithmetic import Arithmetic
from kernels_core.filter.evaluation import Values, evaluate_step
from kernels_core.filter.run import RAD_FRACTION
from kernels_core.program import Meta, Program, Ref, Step
from kernels_core.rules import registry

PRECISION = 300
ELEMENTS = 6  # compared of each result
FREE_SIGNS = frozenset({"aten._linalg_eigh.default", "aten._linalg_svd.default"})  # of the vectors, see free_signs.py


@dataclasses.dataclass
class Found:
    """How many elements were compared by rule, how many of them in double-double, and what was wrong."""

    compared: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    doubled: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Found) -> None:
        """Take over what another found."""
        self.compared.update(other.compared)
        self.doubled.update(other.doubled)
        self.wrong += other.wrong


def check_program(
    program: Program, inputs: Mapping[str, torch.Tensor], often: int = 3, only: Collection[str] | None = None
) -> Found:
    """Compare a few elements of the results of each step, each rule at most `often` times (`only` these, if given)."""
    values, found, times = Values(), Found(), collections.Counter[str]()
    names = {number: name for name, number in program.inputs.items()}
    for step in program.steps:
        if step.op is None:
            leaf = inputs[names[step.number]] if step.number in names else program.constants[step.number]
            values[Ref(step.number)] = _exactly(leaf)
            continue
        results = evaluate_step(step, values, Arithmetic(float64=True))
        times[step.name] += 1
        if times[step.name] <= often and (only is None or step.name in only):
            check_step(step, values, results, found)
        for output, value in enumerate(results):
            if value is not None:
                values[Ref(step.number, output)] = Enclosure(value.mid)
    return found


def check_call(name: str, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], elements: int = ELEMENTS) -> Found:
    """Compare an operation called with these tensors."""
    tensors: list[torch.Tensor] = []

    def ref(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(ref(v) for v in value)
        if not isinstance(value, torch.Tensor):
            return value
        tensors.append(value)
        return Ref(len(tensors) - 1)

    given = ref(args)
    result = op(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    metas = [_meta(t) for t in results]
    step = Step(len(tensors), op, name, given, kwargs, tuple(metas), "", False, tuple(_meta(t) for t in tensors))
    values = Values({Ref(k): _exactly(t) for k, t in enumerate(tensors)})
    found = Found()
    check_step(step, values, evaluate_step(step, values, Arithmetic(float64=True)), found, elements)
    return found


def _exactly(leaf: torch.Tensor) -> Enclosure:
    return Enclosure(leaf.double() if leaf.is_floating_point() else leaf)


def _meta(tensor: torch.Tensor) -> Meta:
    return Meta(tuple(tensor.shape), tensor.dtype)


def check_step(
    step: Step, values: Values, results: list[Enclosure | None], found: Found, elements: int = ELEMENTS
) -> None:
    """Compare some elements of each result of one step."""
    own = Values({**values, **{Ref(step.number, k): v for k, v in enumerate(results) if v is not None}})
    arithmetic = Arithmetic()
    granted = evaluate_step(step, values, arithmetic)
    wide = any(m is not None and m.dtype is torch.float64 for m in (*step.metas, *step.operand_metas))
    fraction = 1.0 if arithmetic.rad_lost or wide else RAD_FRACTION
    for output, (value, allowed) in enumerate(zip(results, granted, strict=True)):
        if value is None or allowed is None or not value.mid.numel():
            continue
        rad = _zeros(value)
        if value.floating:
            rad = np.minimum(_flat(value, value.bound), _flat(allowed, allowed.bound) * fraction)
        _compare_some(Part(step, output, value, rad, own, found.wrong, found.compared), elements)
    if wide and step.name not in FREE_SIGNS:
        _check_doubles(step, values, found, elements)


def _check_doubles(step: Step, values: Values, found: Found, elements: int) -> None:
    results = evaluate_step(step, values, Arithmetic(doubles=True))
    own = Values({**values, **{Ref(step.number, k): v for k, v in enumerate(results) if v is not None}})
    for output, value in enumerate(results):
        if value is not None and value.mid.numel():
            rad = _flat(value, value.rad)
            _compare_some(Part(step, output, value, rad, own, found.wrong, found.doubled), elements)


class Part(NamedTuple):
    """One result of a step with the radius to hold against it, and where what is found goes."""

    step: Step
    output: int
    value: Enclosure
    rad: np.ndarray
    values: Values
    wrong: list[str]
    compared: collections.Counter[str]


def _zeros(value: Enclosure) -> np.ndarray:
    return np.zeros(value.mid.numel())


def _flat(value: Enclosure, part: torch.Tensor | None) -> np.ndarray:
    return _zeros(value) if part is None else flat_array(part.expand(value.mid.shape)).astype(float)


def _compare_some(part: Part, elements: int) -> None:
    value = part.value
    index = np.unique(np.linspace(0, value.mid.numel() - 1, elements).astype(np.int64))
    known = np.isfinite(flat_array(value.mid)[index].astype(float)) & np.isfinite(part.rad[index])
    known &= np.isfinite(_flat(value, value.low)[index])
    if value.unsure is not None:
        known &= ~value.unsure.expand(value.mid.shape).reshape(-1).numpy()[index]
    if known.any():
        _compare(part, index[known])


def _compare(part: Part, index: np.ndarray) -> None:
    step, value = part.step, part.value
    try:
        exact = _exact_values(step, part.output, index, part.values)
        if exact is None and len(index) > 1:  # one of them cannot be told: each by itself
            for k in range(len(index)):
                _compare(part, index[k : k + 1])
            return
    except Exception as error:
        part.wrong.append(f"{step.name} {step.operand_metas}, result {part.output}: {type(error).__name__}: {error}")
        return
    mids, lows = flat_array(value.mid)[index].tolist(), _flat(value, value.low)[index].tolist()
    for where, true, mid, low, r in zip(
        index, () if exact is None else exact, mids, lows, part.rad[index].tolist(), strict=exact is not None
    ):
        signs = (1, -1) if step.name in FREE_SIGNS else (1,)
        centre = _rational(mid) + _rational(low)
        part.compared[step.name] += _is_sharp(true, r)
        if all(_beyond(true, sign * centre, r) for sign in signs):
            meta = step.metas[part.output]
            part.wrong.append(f"{step.name} {meta} [{where}]: exact {true}, mid {mid!r} + {low!r}, rad {r!r}")


def _exact_values(step: Step, output: int, index: np.ndarray, values: Values) -> Any:
    """Return the exact values on the operands as they are, None where the rule cannot tell."""
    rule = registry()[step.name]
    integers = {ref: v for ref, v in values.items() if not v.floating}
    cones = tuple(np.asarray(c, dtype=np.int64) for c in rule.cone(Call(step, output, index, integers)))
    for numbers in (Numbers(None), Numbers(PRECISION)):
        try:
            with numbers.active():
                operands = []
                for ref, cone in zip(step.operands, cones, strict=True):
                    flat = flat_array(values[ref].mid)
                    operands.append(numbers.array(flat[np.maximum(cone, 0)] if flat.size else np.empty(cone.shape)))
                return rule.exact(Call(step, output, index, integers, numbers, cones), *operands)
        except (NotRationalError, NotSeparatedError):
            continue
    return None


def _is_sharp(exact: Any, rad: float) -> bool:
    """Return True where the exact value is known better than the radius that is held against it."""
    return not isinstance(exact, flint.arb) or bool(exact.rad() <= max(rad, 2.0**-200 * abs(float(exact.mid()))))


def _beyond(exact: Any, centre: flint.fmpq, rad: float) -> bool:
    """Return True where |exact - centre| > rad for certain."""
    if isinstance(exact, (int, bool, np.integer, np.bool_)):
        exact = flint.fmpq(int(exact))
    if isinstance(exact, flint.arb):
        with flint.ctx.workprec(PRECISION):
            return bool(abs(exact - flint.arb(centre)) > flint.arb(rad))
    if isinstance(exact, float):  # an infinity or NaN, where mid is finite
        return math.isfinite(exact) is False
    return bool(abs(exact - centre) > _rational(rad))


def _rational(value: Any) -> Any:
    return flint.fmpq(*float(value).as_integer_ratio())
