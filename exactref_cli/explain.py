"""What a case will do, read off the spec and the reference's program: no kernel is called, no value is drawn.

The user's modules are imported, because the names in a spec are looked up in them. The reference is traced on tensors
that have shapes but no elements; a kernel that is its own reference is traced that way too, by its forward.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from exactref_cli.inputs import Drawn, TensorInput, flat
from exactref_cli.run import Case
from kernels_core import verify as engine
from kernels_core.battery import select
from kernels_core.check import Check
from kernels_core.errors import ExactRefError, UsageError
from kernels_core.explain.costs import Cost, estimate
from kernels_core.explain.granted import Granted, granted
from kernels_core.program import Program
from kernels_core.tracing import trace as tracing
from kernels_core.tracing.complex_parts import differentiable


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One input, output or gradient.

    Attributes:
        name, shape, dtype: of the tensor.
        role: "input", "output" or "gradient".
        values: how an input is made: "normal", "integers below 8", "listed", "from make_inputs".
        differentiated: True for an input whose gradient is checked.
        granted: what the reference grants to an output or gradient; None for inputs and for gradients that are zero.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    values: str = ""
    differentiated: bool = False
    granted: Granted | None = None


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What one case will do.

    Attributes:
        case: that is explained.
        tensors: inputs, outputs and gradients, in this order.
        plain: the inputs that are no tensors, by name.
        cost: of the plain comparison; None where the reference could not be traced without values.
        items: names of the battery's items.
        problem: why the contract of outputs and gradients cannot be told, "" where it is.
    """

    case: Case
    tensors: tuple[Tensor, ...]
    plain: Mapping[str, Any]
    cost: Cost | None
    items: tuple[str, ...]
    problem: str = ""


def explain(case: Case) -> Explanation:
    """Return what a case will do; nothing of the kernel is executed.

    Raises:
        ExactRefError: a mistake in the spec that shows before anything runs: inputs that do not fit the reference.
    """
    drawn = _without_elements(case)
    check = engine.prepared(
        case.function, drawn.values, reference=case.reference, reference_backward=case.reference_backward,
        surrogate=case.surrogate, wrt=drawn.wrt, profile=case.profile,
        bound=case.bound, kinks=case.kinks,
    )  # fmt: skip
    inputs, plain = tuple(_inputs(case, drawn, check)), _plain(drawn.values)
    items = tuple(item.name for item in select(case.battery))
    try:
        with tracing.without_values():
            programs = _programs(check)
            results, cost = tuple(_results(check, programs)), estimate(programs[""])
    except ExactRefError as error:
        return Explanation(case, inputs, plain, None, items, str(error))
    return Explanation(case, (*inputs, *results), plain, cost, items)


def _without_elements(case: Case) -> Drawn:
    """Return the inputs with the right shapes and dtypes in memory that nothing has touched."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            drawn = case.inputs()
    except Exception:  # a function of the user's that makes inputs may need real ones
        drawn = case.inputs()
    try:
        return dataclasses.replace(drawn, values={name: _emptied(value) for name, value in drawn.values.items()})
    except (RuntimeError, MemoryError) as error:
        raise UsageError(f"{case.name}: the inputs do not fit into the memory of this machine") from error


def _emptied(value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: torch.empty(t.shape, dtype=t.dtype), value)


def _programs(check: Check) -> dict[str, Program]:
    """Return the program of each result by its name, and under "" the one that is evaluated for all of them."""
    whole = check.joint if check.wrt else check.forward
    found = {"": whole, **dict.fromkeys(whole.outputs, whole)}
    if check.reference.declared is not None and check.wrt:
        declared = check.declared_backward_program()
        found |= dict.fromkeys(declared.outputs, declared)
    return found


def _inputs(case: Case, drawn: Drawn, check: Check) -> Iterator[Tensor]:
    """Yield the tensor inputs under the names of the kernel."""
    given = {one.name: one for group in case.given for one in flat(group) if isinstance(one, TensorInput)}
    smallest = min((n for one in given.values() if differentiable(one.dtype) for n in one.shape), default=2)
    names = zip(tracing.named_tensors(drawn.values), check.tensors.items(), strict=True)
    for name, (known, tensor) in names:
        values = made_of(given[name], smallest) if name in given else _origin(case)
        yield Tensor(name, tuple(tensor.shape), _dtype(tensor), "input", values, known in check.asked)


def made_of(given: TensorInput, smallest: int) -> str:
    """Return how an input is made, in words."""
    if not isinstance(given.values, str):
        return "listed"
    if given.dtype == torch.bool:
        return "mask"
    if differentiable(given.dtype):
        return given.values
    return f"integers below {smallest if given.below is None else given.below}"


def _origin(case: Case) -> str:
    return "a parameter of the module" if case.given else "from inputs_from"


def _results(check: Check, programs: Mapping[str, Program]) -> Iterator[Tensor]:
    for name, program in programs.items():
        if not name:
            continue
        role = "gradient" if name.startswith("grad_") else "output"
        meta = program.output_metas.get(name) if program.outputs[name] is not None else None
        if meta is None:
            like = check.tensors[name.removeprefix("grad_")]
            yield Tensor(name, tuple(like.shape), _dtype(like), role)
        else:
            yield Tensor(name, meta.shape, str(meta.dtype)[6:], role, granted=granted(program, name))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        for path, leaf in pytree.tree_flatten_with_path(value, is_leaf=lambda x: x is None)[0]:
            if not isinstance(leaf, torch.Tensor):
                found[name + pytree.keystr(path)] = leaf
    return found


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def explained(cases: Sequence[Case]) -> list[Explanation]:
    """Return what every case will do."""
    return [explain(case) for case in cases]
