"""Find by trial which inputs a kernel takes, on fake tensors that have shapes but no elements.

Candidates are templates such as ("MK", "KN"), one letter per dimension, likely ones first: same shapes, chained matrix
shapes, vector parameters, integer indices. The first that the kernel accepts is taken. "Accepts" is strict at first,
forward and backward run and every floating input gets a gradient of its shape, and laxer only where no candidate
passes, so that a faulty backward is never a reason to move on to shapes that hide the fault.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from exactref_cli import structure
from exactref_cli.inputs import Input, PlainInput, TensorInput, flat
from exactref_cli.signature import TENSOR, Parameter
from exactref_cli.templates import KINDS, SIZES, SQUARE, Given, completed, free
from exactref_cli.trial import Trial
from kernels_core.errors import UsageError
from kernels_core.kernel.modules import ModuleKernel
from kernels_core.tracing.complex_parts import differentiable

# (how strict, on fake tensors, which templates). A backward that misses a gradient or raises is a fault to be reported:
# integers where no name says so, and inputs that only the forward accepts, come after all that the backward accepts.
ORDER = (
    ("strict", True, ("named", "floating")),
    ("backward", True, ("named", "floating")),
    ("strict", True, ("mixed",)),
    ("backward", True, ("mixed",)),
    ("strict", False, KINDS),  # a backward that reads values cannot run on fake tensors
    ("backward", False, KINDS),
    ("forward", True, KINDS),
)
MOST_KEYS = 16  # of a dict whose keys are found by trial
_OF_A_GPU = ("cuda", "gpu", "active drivers")  # words of errors of kernels that are called without one

Kernel = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Search:
    """What a search for inputs is about.

    Attributes:
        parameters: of the kernel, items of lists and dicts one by one.
        given: what the user fixed.
        dtype: of floating inputs.
        sizes: of the letters of a template.
    """

    parameters: Sequence[Parameter]
    given: Given
    dtype: torch.dtype
    sizes: Mapping[str, int]

    def completed(self, plain: bool, kind: str, square: bool = False) -> Iterator[tuple[Input, ...]]:
        """Yield the templates of one kind."""
        return completed(self.parameters, self.given, self.dtype, plain, SQUARE if square else self.sizes, kind)

    def free(self, integers: bool) -> Iterator[tuple[Input, ...]]:
        """Yield every combination of common shapes."""
        return free(self.parameters, self.given, self.dtype, self.sizes, integers)


def find(
    kernel: Kernel, text: str, parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, device: str = "cpu"
) -> tuple[Input, ...]:
    """Return inputs that the kernel accepts.

    Args:
        kernel: what is called.
        text: how the user calls it, for messages.
        parameters: of the kernel.
        given: what the user fixed.
        dtype: of floating inputs.
        device: where the trial runs.

    Raises:
        UsageError: no candidate was accepted and the user did not fix all shapes.
    """
    trial = Trial(kernel, device, dtype)
    sizes = {**SIZES, **_sizes_of(kernel)}
    fallback: tuple[Input, ...] | None = None
    for structures in _structures(trial, parameters, given, dtype, sizes):
        search = Search(structure.leaves(parameters, structures), given, dtype, sizes)
        for inputs, level, fake in _attempts(search):
            whole = structure.grouped(parameters, structures, inputs)
            if trial.accepts(whole, level, fake):
                return whole
        chosen = _as_given(search) if fallback is None else None
        fallback = fallback if chosen is None else structure.grouped(parameters, structures, chosen)
    if fallback is not None:
        return fallback
    missing = " ".join(f"--shape {name}=16x32" for name in _missing(parameters, given))
    remedy = f"give them: {missing}"
    if trial.device == "cpu" and any(word in trial.first_error.lower() for word in _OF_A_GPU):
        remedy += "; a kernel that needs a GPU is called there with --device cuda"
        remedy += ", one in Triton without one where TRITON_INTERPRET=1 is set" if "driver" in trial.first_error else ""
    raise UsageError(
        f"no shapes were found for {text} by trial; with the first candidate: {trial.first_error}\n{remedy}"
    )


def find_with_optional(
    kernel: Kernel, parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, device: str = "cpu"
) -> tuple[Input, ...] | None:
    """Return inputs with a tensor for every parameter that may be one and is None by default; None where there is none.

    Only what the kernel accepts strictly counts: each of these tensors gets a gradient.
    """
    taken = [p for p in parameters if p.optional and not _is_given(p, given)]
    if not taken:
        return None
    opened = [dataclasses.replace(p, has_default=False) if p in taken else p for p in parameters]
    trial, sizes = Trial(kernel, device, dtype), {**SIZES, **_sizes_of(kernel)}
    for structures in _structures(trial, opened, given, dtype, sizes):
        search = Search(structure.leaves(opened, structures), given, dtype, sizes)
        for kind in ("named", "floating"):
            for inputs in search.completed(True, kind):
                whole = structure.grouped(opened, structures, inputs)
                if trial.accepts(whole, "strict", True):
                    return whole
    return None


def describe(inputs: Sequence[Input]) -> str:
    """Return the inputs in the words of the command line: "A=16x32 B=32x8 index=8 (int64) eps=1e-05"."""
    return " ".join(_described(one) for given in inputs for one in flat(given))


def _described(given: TensorInput | PlainInput) -> str:
    if isinstance(given, PlainInput):
        return f"{given.name}={given.value!r}"
    sizes = "x".join(map(str, given.shape)) or "scalar"
    return f"{given.name}={sizes}" + ("" if differentiable(given.dtype) else f" ({str(given.dtype)[6:]})")


def _is_given(p: Parameter, given: Given) -> bool:
    names = [*given.shapes, *given.values, *given.families]
    return any(name == p.name or name.startswith(p.name + "[") for name in names)


def _missing(parameters: Sequence[Parameter], given: Given) -> list[str]:
    open_ = [
        p for p in parameters if not p.has_default and not any(p.name == n for n in (*given.shapes, *given.values))
    ]
    return [p.name if p.structure == TENSOR else f"'{p.name}[0]'" for p in open_]


def _as_given(search: Search) -> tuple[Input, ...] | None:
    """Return the user's choice where every shape is one: the run itself will tell what the kernel says to it."""
    given = search.given
    if not all(p.name in given.shapes or p.name in given.values or p.has_default for p in search.parameters):
        return None
    kinds = (search.completed(True, kind) for kind in KINDS)
    return next(itertools.chain.from_iterable(kinds), None)


def _structures(
    trial: Trial, parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, sizes: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the structures to try: lists of three tensors, two or one, dicts with the keys that the kernel reads."""
    names = [*given.shapes, *given.values, *given.families]
    opened = any(structure.is_open(parameters, names, word) for word in ("list", "tuple"))
    keys = _keys(trial, parameters, given, dtype, sizes) if structure.is_open(parameters, names, "dict") else []
    for count in structure.COUNTS if opened else (1,):
        yield structure.filled(parameters, names, count, keys)


def _keys(
    trial: Trial, parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, sizes: Mapping[str, int]
) -> list[str]:
    """Return the keys that the kernel reads from a dict: each one that it misses is given to it."""
    names, keys = [*given.shapes, *given.values, *given.families], list[str]()
    while len(keys) < MOST_KEYS:
        structures = structure.filled(parameters, names, 2, keys)
        search = Search(structure.leaves(parameters, structures), given, dtype, sizes)
        first = next(itertools.chain.from_iterable(search.completed(True, kind) for kind in KINDS), None)
        if first is None or trial.accepts(structure.grouped(parameters, structures, first), "forward", True):
            break
        missed = trial.last.args[0] if isinstance(trial.last, KeyError) and trial.last.args else None
        if not isinstance(missed, str) or missed in keys:
            break
        keys.append(missed)
    trial.first_error = ""
    return keys


def _attempts(search: Search) -> Iterator[tuple[tuple[Input, ...], str, bool]]:
    """Yield (inputs, how strict, on fake tensors), in the order in which they are to be tried.

    With one tensor, a backward that raises on matrices is a fault: vectors and scalars, which would hide it, come last.
    """
    for attempt in _in_order(search):
        tensors = [one for one in attempt[0] if isinstance(one, TensorInput)]
        if len(tensors) == 1 and len(tensors[0].shape) > 1:
            yield attempt
    yield from _in_order(search)


def _in_order(search: Search) -> Iterator[tuple[tuple[Input, ...], str, bool]]:
    plans = [True, False] if any(p.guess is not None and not p.has_default for p in search.parameters) else [False]
    for level, fake, kinds in ORDER:
        if kinds == ("mixed",):
            yield from ((c, level, fake) for c in search.free(integers=False))
        for kind, plain in itertools.product(kinds, plans):
            yield from ((c, level, fake) for c in search.completed(plain, kind))
    for level in ("strict", "backward", "forward"):
        yield from ((c, level, True) for c in search.free(integers=True))
        for kind in KINDS:
            yield from ((c, level, True) for c in search.completed(plans[0], kind, square=True))
    for kind, plain in itertools.product(KINDS, plans):  # kernels that refuse fake tensors
        yield from ((c, "forward", False) for c in search.completed(plain, kind))


def _sizes_of(kernel: Kernel) -> dict[str, int]:
    """Return the sizes that the weight of a module fixes for its input: the last dimension, the channels."""
    module = kernel.plain if isinstance(kernel, ModuleKernel) else kernel
    weight = next(iter(module.parameters()), None) if isinstance(module, torch.nn.Module) else None
    if weight is None or weight.dim() == 0:
        return {}
    return {"K": weight.shape[-1]} if weight.dim() < 3 else {"C": weight.shape[1]}
