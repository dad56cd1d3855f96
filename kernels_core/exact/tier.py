"""The exact tier: the value of single elements in FLINT, for what float64 leaves undecided.

Only the cone of the program that the requested elements depend on is evaluated. From the requested flat indices of an
output the program is walked backwards, each rule saying which elements of its operands it needs; then forwards, each
rule computing the exact values of just these elements. Rationals first, which decides ties; then balls whose precision
doubles until everything is decided. A budget ends in undecided, never in a guess.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import flint
import numpy as np
import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotRationalError, NotSeparatedError, Numbers, Objects
from kernels_core.filter.saturation import limited_exactly
from kernels_core.program import Meta, Program, Ref, Step
from kernels_core.rules import registry
from kernels_core.rules.cones import broadcast_cone

Index = Any  # numpy int64 array of flat indices


@dataclasses.dataclass(frozen=True)
class Budget:
    """What the exact tier may spend on one tensor.

    Attributes:
        elements: values in a cone; a larger cone is split, a single element beyond it stays undecided.
        seconds: wall-clock time.
        precision: largest precision of balls, in bits.
        rational_bits: largest rational, in bits of numerator and denominator.
    """

    elements: int = 400_000
    seconds: float = 60.0
    precision: int = 4096
    rational_bits: int = 200_000


@dataclasses.dataclass(frozen=True)
class Call:
    """What a rule's cone and exact value are asked for.

    Attributes:
        step: the operation.
        output: which of its results.
        index: flat indices of the requested elements of that result, int64 of shape (n,).
        integers: integer and boolean tensors of the program by Ref, for rules that index with them.
        numbers: the number system (exact only).
        indices: the operands' flat indices as the rule's cone gave them (exact only).
    """

    step: Step
    output: int
    index: Index
    integers: Mapping[Ref, Enclosure]
    numbers: Numbers = dataclasses.field(default_factory=lambda: Numbers(None))
    indices: tuple[Index, ...] = ()

    @property
    def meta(self) -> Meta:
        """Shape and dtype of the requested result."""
        meta = self.step.metas[self.output]
        if meta is None:
            raise TypeError(f"{self.step.name} has no tensor result {self.output}")
        return meta

    def integer(self, position: int) -> np.ndarray:
        """Return the integer or boolean tensor operand number `position` as a numpy array."""
        return self.integers[self.step.operands[position]].mid.cpu().numpy()


class BudgetSpentError(Exception):
    """The cone is larger than the budget."""


@dataclasses.dataclass
class _Node:
    """The part of one step's result that is needed."""

    index: Index
    cones: tuple[Index, ...] = ()
    values: Objects | None = None


class Cone:
    """The needed part of a program, and its exact evaluation in one number system."""

    def __init__(
        self,
        program: Program,
        name: str,
        index: Index,
        inputs: Mapping[str, np.ndarray],
        integers: Mapping[Ref, Enclosure],
        budget: Budget,
    ) -> None:
        """Walk back from the elements `index` (flat) of the output `name`.

        Args:
            program: the program.
            name: an output.
            index: flat indices.
            inputs: the program's inputs as flat numpy arrays (float64, integers or booleans).
            integers: see `Call`.
            budget: bounds the size of the cone.
        """
        self.program, self.inputs, self.integers, self.budget = program, inputs, integers, budget
        self.name = name
        ref = program.outputs[name]
        if ref is None:
            raise KeyError(f"{name} is zero by construction")
        self.target = ref
        self.nodes: dict[Ref, _Node] = {ref: _Node(np.unique(index))}
        self.requested = index
        self.size = 0
        for step in reversed(program.steps):
            for output in range(len(step.metas)):
                if step.op is not None and Ref(step.number, output) in self.nodes:
                    self._ask(step, output)

    def _ask(self, step: Step, output: int) -> None:
        node = self.nodes[Ref(step.number, output)]
        call = Call(step, output, node.index, self.integers)
        node.cones = tuple(np.asarray(cone, dtype=np.int64) for cone in registry()[step.name].cone(call))
        for ref, cone in zip(step.operands, node.cones, strict=True):
            self.size += cone.size
            if self.size > self.budget.elements:
                raise BudgetSpentError
            needed = np.unique(cone[cone >= 0])
            if ref in self.nodes:
                needed = np.union1d(self.nodes[ref].index, needed)
            self.nodes[ref] = _Node(needed)

    def evaluate(self, numbers: Numbers) -> Objects:
        """Return the exact values of the requested elements.

        Raises:
            NotRationalError, NotSeparatedError: this number system cannot; another may.
        """
        names = {number: name for name, number in self.program.inputs.items()}
        with numbers.active():
            for step in self.program.steps:
                for output in range(len(step.metas)):
                    node = self.nodes.get(Ref(step.number, output))
                    if node is None:
                        continue
                    if step.op is None:
                        node.values = numbers.array(self._leaf(step, names)[node.index])
                    else:
                        node.values = self._value(step, output, node, numbers)
            target = self.nodes[self.target]
            values: Objects = target.values[np.searchsorted(target.index, self.requested)]  # type: ignore[index]
            return limited_exactly(values, self.program.output_metas[self.name].dtype, numbers)

    def _leaf(self, step: Step, names: Mapping[int, str]) -> np.ndarray:
        if step.number in names:
            return self.inputs[names[step.number]]
        return flat_array(self.program.constants[step.number])

    def _value(self, step: Step, output: int, node: _Node, numbers: Numbers) -> Objects:
        operands = []
        for ref, cone in zip(step.operands, node.cones, strict=True):
            have = self.nodes[ref]
            place = np.searchsorted(have.index, np.maximum(cone, 0))
            known = np.asarray(have.values, dtype=object)
            operands.append(known[np.minimum(place, len(known) - 1)] if len(known) else np.empty(cone.shape, object))
        call = Call(step, output, node.index, self.integers, numbers, node.cones)
        values = np.asarray(registry()[step.name].exact(call, *operands), dtype=object)
        if not step.backward:
            values = limited_exactly(values, call.meta.dtype, numbers)
        if numbers.rational and any(_bits(v) > self.budget.rational_bits for v in values.flat):
            raise NotRationalError
        values = values.reshape(node.index.shape)
        elementwise = registry()[step.name].cone is broadcast_cone and not numbers.rational
        return _shared(values, operands) if elementwise and operands else values


def _shared(values: Objects, operands: list[Objects]) -> Objects:
    """Return the values, one object for all that come from the same operands: balls cannot tell that they are equal."""
    if any(len(given) != len(values) for given in operands):
        return values
    first: dict[tuple[Any, ...], Any] = {}
    keys = [tuple(_identity(v) for v in given) for given in zip(*operands, strict=True)]
    shared = np.empty(len(values), dtype=object)
    shared[:] = [first.setdefault(key, value) for key, value in zip(keys, values, strict=True)]
    return shared


def _identity(value: Any) -> Any:
    """Return what only the same number has: exact ones by value, balls by themselves (they live as long as a cone)."""
    exact = isinstance(value, flint.arb) and value.is_exact() and value.is_finite()
    return value.man_exp() if exact else id(value) if isinstance(value, flint.arb) else (type(value), str(value))


def _bits(value: Any) -> int:
    return value.p.bit_length() + value.q.bit_length() if hasattr(value, "q") else 0


def flat_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as a flat numpy array, floating values as float64 (exact)."""
    tensor = tensor.detach().cpu()
    return (tensor.double() if tensor.is_floating_point() else tensor).reshape(-1).numpy()


class FlatInputs(Mapping[str, np.ndarray]):
    """Tensors by name as flat numpy arrays, converted when first asked for: most checks never need the exact tier."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Keep the tensors as they are."""
        self._tensors = tensors
        self._flat: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the tensor called `name`."""
        if name not in self._flat:
            self._flat[name] = flat_array(self._tensors[name])
        return self._flat[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._tensors)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._tensors)


Decide = Callable[[Objects, np.ndarray], np.ndarray]


def resolve(
    program: Program,
    name: str,
    index: np.ndarray,
    inputs: Mapping[str, np.ndarray],
    integers: Mapping[Ref, Enclosure],
    decide: Decide,
    budget: Budget,
) -> None:
    """Evaluate elements exactly until `decide` has settled them or the budget is spent.

    Args:
        program: see `Cone`.
        name: see `Cone`.
        inputs: see `Cone`.
        integers: see `Call`.
        index: flat indices of the elements to settle.
        decide: called with exact values and the flat indices they belong to; returns a boolean array, True where
            the value was precise enough to settle the element.
        budget: what may be spent.
    """
    deadline = time.monotonic() + budget.seconds
    waiting = [np.asarray(index, dtype=np.int64)]
    while waiting and time.monotonic() < deadline:
        part = waiting.pop()
        try:
            cone = Cone(program, name, part, inputs, integers, budget)
        except BudgetSpentError:
            if len(part) > 1:
                waiting += [part[: len(part) // 2], part[len(part) // 2 :]]
            continue
        _settle(cone, part, decide, budget, deadline)


def _settle(cone: Cone, index: np.ndarray, decide: Decide, budget: Budget, deadline: float) -> None:
    precision: int | None = None
    while time.monotonic() < deadline:
        try:
            values = cone.evaluate(Numbers(precision))
        except (NotRationalError, NotSeparatedError):
            settled = np.zeros(len(index), dtype=bool)
        else:
            settled = decide(values, index)
        if settled.all():
            return
        precision = 128 if precision is None else 2 * precision
        if precision > budget.precision:
            return
