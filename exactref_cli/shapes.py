"""Find by trial which inputs a kernel takes, on fake tensors that have shapes but no elements.

Candidates are templates such as ("MK", "KN"), one letter per dimension, likely ones first: same shapes, chained matrix
shapes, vector parameters, integer indices. The first that the kernel accepts is taken. "Accepts" is strict at first,
forward and backward run and every floating input gets a gradient of its shape, and laxer only where no candidate
passes, so that a faulty backward is never a reason to move on to shapes that hide the fault.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from exactref_cli.inputs import Input, PlainInput, TensorInput, draw
from exactref_cli.signature import Parameter
from kernels_core.errors import UsageError

SIZES = {"M": 16, "K": 32, "N": 8, "P": 24, "B": 2, "C": 4, "L": 12, "H": 6, "W": 5, "O": 3, "k": 3}
SQUARE = {**SIZES, "M": 16, "K": 16, "N": 16, "P": 16}
LIMIT = 400  # candidates of the free search
INTEGER = "#"  # "#M" is an integer vector

# Templates whose integers are where the names say so, those without integers, and the others.
KINDS = ("named", "floating", "mixed")

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

Kernel = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Given:
    """What the user fixed: shapes, values (nested lists or plain values) by parameter name."""

    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def find(
    kernel: Kernel, text: str, parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, device: str = "cpu"
) -> tuple[Input, ...]:
    """Return inputs that the kernel accepts.

    Args:
        kernel: what is called, with the inputs as positional arguments, those that are keyword-only by name.
        text: how the user calls it, for messages.
        parameters: of the kernel.
        given: what the user fixed.
        dtype: of floating inputs.
        device: where the trial runs.

    Raises:
        UsageError: no candidate was accepted and the user did not fix all shapes.
    """
    trial = _Trial(kernel, device, frozenset(p.name for p in parameters if p.by_keyword))
    sizes = {**SIZES, **_sizes_of(kernel)}
    for inputs, level, fake in _attempts(parameters, given, dtype, sizes):
        if trial.accepts(inputs, level, fake):
            return inputs
    if all(p.name in given.shapes or p.name in given.values or p.has_default for p in parameters):
        kinds = (_completed(parameters, given, dtype, True, sizes, kind) for kind in KINDS)
        return next(itertools.chain.from_iterable(kinds))  # the user's choice: the run itself will tell
    missing = " ".join(
        f"--shape {p.name}=16x32" for p in parameters if p.name not in given.shapes and not p.has_default
    )
    raise UsageError(f"no shapes were found for {text} by trial; with the first candidate: {trial.first_error}\n"
                     f"give them: {missing}")  # fmt: skip


def describe(inputs: Sequence[Input]) -> str:
    """Return the inputs in the words of the command line: "A=16x32 B=32x8 index=8 (int64) eps=1e-05"."""
    return " ".join(_described(given) for given in inputs)


def _described(given: Input) -> str:
    if isinstance(given, PlainInput):
        return f"{given.name}={given.value!r}"
    sizes = "x".join(map(str, given.shape)) or "scalar"
    return f"{given.name}={sizes}" + ("" if given.dtype.is_floating_point else f" ({str(given.dtype)[6:]})")


def _attempts(
    parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, sizes: Mapping[str, int]
) -> Iterator[tuple[tuple[Input, ...], str, bool]]:
    """Yield (inputs, how strict, on fake tensors), in the order in which they are to be tried.

    With one tensor, a backward that raises on matrices is a fault: vectors and scalars, which would hide it, come last.
    """
    for attempt in _in_order(parameters, given, dtype, sizes):
        tensors = [one for one in attempt[0] if isinstance(one, TensorInput)]
        if len(tensors) == 1 and len(tensors[0].shape) > 1:
            yield attempt
    yield from _in_order(parameters, given, dtype, sizes)


def _in_order(
    parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, sizes: Mapping[str, int]
) -> Iterator[tuple[tuple[Input, ...], str, bool]]:
    plans = [True, False] if any(p.guess is not None and not p.has_default for p in parameters) else [False]
    for level, fake, kinds in ORDER:
        for kind, plain in itertools.product(kinds, plans):
            yield from ((c, level, fake) for c in _completed(parameters, given, dtype, plain, sizes, kind))
    for level in ("strict", "backward", "forward"):
        yield from ((c, level, True) for c in _free(parameters, given, dtype, sizes))
        for kind in KINDS:
            yield from ((c, level, True) for c in _completed(parameters, given, dtype, plans[0], SQUARE, kind))
    for kind, plain in itertools.product(KINDS, plans):  # kernels that refuse fake tensors
        yield from ((c, "forward", False) for c in _completed(parameters, given, dtype, plain, sizes, kind))


def _completed(
    parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, plain: bool, sizes: Mapping[str, int], kind: str
) -> Iterator[tuple[Input, ...]]:
    """Yield the templates of one kind that agree with what is given."""
    fixed, open_ = _fixed(parameters, given, plain)
    for template in [*_templates(len(open_)), *_of_given(open_, given)]:
        bound = _bind(open_, template, given, sizes) if _kind(open_, template) == kind else None
        if bound is not None:
            yield _inputs(parameters, fixed, open_, template, bound, given, dtype)


def _kind(open_: Sequence[Parameter], template: Sequence[str]) -> str:
    integers = [role.startswith(INTEGER) for role in template]
    if integers == [p.looks_integer for p in open_]:
        return "named"
    return "mixed" if any(integers) else "floating"


def _free(
    parameters: Sequence[Parameter], given: Given, dtype: torch.dtype, sizes: Mapping[str, int]
) -> Iterator[tuple[Input, ...]]:
    """Yield every combination of common shapes, up to a limit."""
    fixed, open_ = _fixed(parameters, given, plain=True)
    roles = ("MK", "K", "M", "N", "KN", "NK", "MN", "#M", "#N", "#MK")
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
        elif p.has_default:
            fixed[p.name] = p.default
        elif plain and p.guess is not None:
            fixed[p.name] = p.guess
    return fixed, [p for p in parameters if p.name not in fixed]


def _templates(count: int) -> Iterator[tuple[str, ...]]:
    """Yield the likely templates for `count` tensors, without integers and then with one of them last or first."""
    yield from _floating(count)
    for integer in ("#M", "#N", "#MN"):
        yield from ((*rest, integer) for rest in _floating(count - 1) if count > 1)
        yield from ((integer, *rest) for rest in _floating(count - 1) if count > 1)
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
        yield "MK", *("K",) * rest
        yield "MK", *("M",) * rest
        yield "BMK", *("K",) * rest
        yield "BMK", "BKN", *("N",) * (rest - 1)
        yield "BCL", *("C",) * rest
        yield "BCHW", *("C",) * rest
        yield "BCL", "OCk", *("O",) * (rest - 1)
        yield "BCHW", "OCkk", *("O",) * (rest - 1)
    for shape in ("BMK", "BCL", "BCHW", "K"):
        yield (shape,) * count
    if count == 1:
        yield ("",)


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
        if shape is None or letters == "*":
            continue
        if len(shape) != len(letters) or any(bound.setdefault(k, n) != n for k, n in zip(letters, shape, strict=True)):
            return None
    sizes = {**sizes, **bound}
    return [_sizes(_given_shape(p, given), role, sizes) for p, role in zip(open_, template, strict=True)]


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
        made[p.name] = TensorInput(p.name, shape, cast, given.values.get(p.name, "normal"))
    return tuple(made[p.name] for p in parameters)


class _Trial:
    """Calls the kernel on candidates; remembers why the first one failed."""

    def __init__(self, kernel: Kernel, device: str, by_keyword: frozenset[str]) -> None:
        self.call = kernel.apply if isinstance(kernel, type) and hasattr(kernel, "apply") else kernel
        self.device, self.by_keyword = device, by_keyword
        self.first_error = ""

    def accepts(self, inputs: Sequence[Input], level: str, fake: bool) -> bool:
        """Return True where the kernel runs on these inputs, as strictly as `level` says."""
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        mode = FakeTensorMode(allow_non_fake_inputs=True) if fake else contextlib.nullcontext()
        try:
            with _quiet(), torch.random.fork_rng(devices=devices), mode, torch.enable_grad():
                return self._runs(inputs, level, fake)
        except (Exception, SystemExit) as error:  # whatever it is, the kernel does not take these inputs
            self.first_error = self.first_error or f"{type(error).__name__}: {error}".splitlines()[0]
            return False

    def _runs(self, inputs: Sequence[Input], level: str, fake: bool) -> bool:
        values = {g.name: _empty(g, self.device) for g in inputs} if fake else draw(inputs, 0, self.device).values
        leaves = [v.requires_grad_() for v in values.values() if isinstance(v, torch.Tensor) and v.is_floating_point()]
        named = {name: values.pop(name) for name in self.by_keyword}
        result = self.call(*values.values(), **named)
        outputs = [t for t in (result if isinstance(result, (tuple, list)) else [result]) if _differentiable(t)]
        if level == "forward":
            return True
        if not outputs or not leaves:
            return not leaves
        found = torch.autograd.grad(outputs, leaves, [torch.ones_like(t) for t in outputs], allow_unused=True)
        return level == "backward" or all(g is not None for g in found)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTorch from logging what a trial gets wrong; the kernel warns and prints in its run."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before


def _sizes_of(kernel: Kernel) -> dict[str, int]:
    """Return the sizes that the weight of a module fixes for its input: the last dimension, the channels."""
    weight = next(iter(kernel.parameters()), None) if isinstance(kernel, torch.nn.Module) else None
    if weight is None or weight.dim() == 0:
        return {}
    return {"K": weight.shape[-1]} if weight.dim() < 3 else {"C": weight.shape[1]}


def _empty(given: Input, device: str) -> Any:
    if isinstance(given, PlainInput):
        return given.value
    return torch.zeros(given.shape, dtype=given.dtype, device=device)


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
