"""The same values under other strides: upstream gradients and inputs that are not contiguous.

Autograd hands a backward whatever lies in the graph behind it: `sum` expands one number with strides 0, a transposed
product gives transposed gradients, a slice gives gaps. Values and intervals are those of the plain comparison, only the
memory differs; expanded ones need values that are equal along the expanded dimension, and an evaluation of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from kernels_core.battery.item import Finding, Item
from kernels_core.battery.judgement import Judgement, same_bits
from kernels_core.battery.subject import Subject
from kernels_core.errors import ExactRefError
from kernels_core.kernel.callee import copied
from kernels_core.kernel.modules import ModuleKernel
from kernels_core.tracing.complex_parts import differentiable

Tensor = torch.Tensor
Layout = Callable[[Tensor], Tensor]
OFFSET = 131  # elements before an offset tensor: odd, so that its address is aligned to one element only
PITCH = 129  # elements from the end of a row to the begin of the next
LARGEST_COUNT = 4  # inputs that are laid out one at a time


def transposed(given: Tensor) -> Tensor:
    """Return the values in a memory whose last two dimensions are swapped."""
    return given.mT.contiguous().mT if given.dim() > 1 else given


def sliced(given: Tensor) -> Tensor:
    """Return the values as every second element of a larger memory that holds NaN (or -1) elsewhere."""
    wide = given.new_full((*given.shape[:-1], 2 * given.shape[-1]) if given.dim() else (2,), _filler(given))
    view = wide[..., ::2] if given.dim() else wide[0]
    return view.copy_(given)


def padded_rows(given: Tensor) -> Tensor:
    """Return the values in rows with a gap between them, as a slice of some columns has."""
    if given.dim() < 2:
        return given
    wide = given.new_full((*given.shape[:-1], given.shape[-1] + PITCH), _filler(given))
    return wide[..., : given.shape[-1]].copy_(given)


def reversed_order(given: Tensor) -> Tensor:
    """Return the values in a memory whose dimensions are all reversed: the first is innermost, as in Fortran."""
    order = list(range(given.dim()))[::-1]
    return given.permute(order).contiguous().permute(order) if given.dim() > 2 else given


def offset(given: Tensor) -> Tensor:
    """Return the values contiguously, well behind the start of their memory."""
    memory = given.new_full((given.numel() + 2 * OFFSET,), _filler(given))
    return memory[OFFSET : OFFSET + given.numel()].view(given.shape).copy_(given)


def channels_last(given: Tensor) -> Tensor:
    """Return the values with the second dimension innermost, where there are three or more."""
    return given.movedim(1, -1).contiguous().movedim(-1, 1) if given.dim() > 2 else given


def conjugated(given: Tensor) -> Tensor:
    """Return complex values as a view that conjugates what its memory holds, as the backward of `conj` gives."""
    return given.conj().resolve_conj().conj() if given.is_complex() else given


def _filler(given: Tensor) -> float:
    return float("nan") if differentiable(given.dtype) else 0


LAYOUTS: Mapping[str, Layout] = {
    "transposed": transposed,
    "sliced": sliced,
    "padded rows": padded_rows,
    "reversed": reversed_order,
    "offset": offset,
    "channels last": channels_last,
    "conjugated": conjugated,
}


def differs(laid: Tensor, given: Tensor) -> bool:
    """Return True where the layout is another one than that of a fresh contiguous tensor."""
    return laid.is_conj() or laid.stride() != given.contiguous().stride() or laid.storage_offset() != 0


def _grad_output_layout(subject: Subject) -> Finding:
    judgement = Judgement(subject)
    if not subject.wrt or not subject.upstream:
        return judgement.finding("nothing is differentiated")
    for label, layout in LAYOUTS.items():
        laid = [layout(g) for g in subject.grad_outputs()]
        if any(differs(new, g) for new, g in zip(laid, subject.upstream, strict=True)):
            with judgement.trying(label):
                judgement.look(label, subject.run(upstream=laid))
    for label, laid in _expanded(subject):
        results = subject.results_for(label, [g.clone() for g in laid])  # before a kernel can write to them
        with judgement.trying(label):
            judgement.look(label, subject.run(upstream=laid), results)
    return judgement.finding(", ".join(judgement.done))


def _expanded(subject: Subject) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield upstream gradients with strides 0: one number everywhere, as of `sum`, and one row for all, of `sum(0)`."""
    if any(g.numel() > 1 for g in subject.upstream):
        yield "expanded (one number)", [g.new_full((), 1.25).expand(g.shape) for g in subject.upstream]
    if any(g.dim() > 1 and g.shape[0] > 1 for g in subject.upstream):
        yield "expanded (one row)", [_first_row(g) for g in subject.grad_outputs()]


def _first_row(given: Tensor) -> Tensor:
    return given[:1].expand(given.shape) if given.dim() > 1 and given.shape[0] else given


def _input_layout(subject: Subject) -> Finding:
    judgement = Judgement(subject)
    for label, layout in LAYOUTS.items():
        for which, names in _choices(subject, layout):
            leaves = _laid(subject, names, layout)
            if any(differs(leaves[name], subject.check.tensors[name]) for name in names):
                with judgement.trying(label + which, may_refuse=True):
                    judgement.look(label + which, subject.run(leaves))
    _expanded_inputs(subject, judgement)
    return judgement.finding(", ".join(judgement.done) or "no input has another layout")


def _choices(subject: Subject, layout: Layout) -> Iterator[tuple[str, list[str]]]:
    """Yield all inputs at once, then one at a time: strides that are taken from another input show only so.

    The parameters of a module are its own, contiguous unless `module.to(memory_format=...)` changes them.
    """
    names = list(subject.check.tensors) if layout is channels_last else _given_by_the_caller(subject)
    yield "", names
    if 1 < len(names) <= LARGEST_COUNT:
        yield from ((f" {name}", [name]) for name in names)


def _given_by_the_caller(subject: Subject) -> list[str]:
    own = subject.function.arguments if isinstance(subject.function, ModuleKernel) else {}
    return [name for name in subject.check.tensors if name not in own]


def _laid(subject: Subject, names: list[str], layout: Layout) -> dict[str, Tensor]:
    leaves = subject.leaves()
    for name in names:
        leaf = leaves[name]
        leaves[name] = layout(leaf.detach()).requires_grad_(leaf.requires_grad)
    return leaves


def _expanded_inputs(subject: Subject, judgement: Judgement) -> None:
    """Judge inputs whose rows are one row with stride 0, or overlap; these are other values, with own intervals.

    A kernel that writes to them is not judged: what one memory holds for several elements has no value then.
    """
    for label, view in (("expanded", _first_row), ("overlapping", _overlapping)):
        theirs = _given_by_the_caller(subject)
        rows = {n: view(copied(t)) if n in theirs else copied(t) for n, t in subject.check.tensors.items()}
        before = subject.check.tensors.values()
        if any(row.stride() != t.stride() for row, t in zip(rows.values(), before, strict=True)):
            _other_values(subject, judgement, label, rows)


def _overlapping(given: Tensor) -> Tensor:
    """Return rows that begin one element after the last, windows over one memory, where there are two dimensions."""
    if given.dim() != 2 or not given.numel() or not given.is_floating_point():
        return given
    rows, columns = given.shape
    return given.reshape(-1)[: rows + columns - 1].as_strided((rows, columns), (1, 1))


def _other_values(subject: Subject, judgement: Judgement, label: str, rows: Mapping[str, Tensor]) -> None:
    check = subject.check_at(rows)
    try:
        results = check.both(list(subject.upstream))
    except ExactRefError:  # the reference has no value there: rows that repeat make a matrix singular
        return
    with judgement.trying(label, may_refuse=True):
        leaves = {n: row.detach().requires_grad_(n in subject.wrt) for n, row in rows.items()}
        before = {n: row.clone() for n, row in rows.items()}
        found = subject.run(leaves)
        if all(same_bits(row, before[n]) for n, row in rows.items()):
            judgement.look(label, found, results, doubts=False)


ITEMS = (
    Item("grad_output_layout",
         "upstream gradients: transposed, sliced, padded, offset, expanded, channels-last, conjugate views",
         _grad_output_layout),
    Item("input_layout", "inputs: transposed, sliced, padded, offset, expanded, channels-last, conjugate views",
         _input_layout),
)  # fmt: skip
