"""What is summed by each operation: the terms of some of a step's sums.

A sum adds a row of its operand, a product the products of a row and a column. A convolution and its gradients are sums
of products too, at the places that the cone of their rule names. The derivatives of softmax and log-softmax hold a sum
over each row, of g p and of g.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import torch

from kernels_core.audit.sample import spread, taken
from kernels_core.exact.tier import Call
from kernels_core.filter.arithmetic import Local
from kernels_core.program import Step
from kernels_core.rules import registry
from kernels_core.rules.cones import normal_dims
from kernels_core.rules.matmul_inputs import narrowed

SUMS, TERMS = 256, 1 << 20  # sampled sums, and terms of all of them

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class Terms:
    """Some of a step's sums: the terms, float64 [sums, n], which results they are, and what the sum is divided by.

    Attributes:
        partial: partial sums of all results, [all sums, places], after each term or at places at equal distances; None
            where they are not at hand.
        read: `values` of operands as the profile lets a kernel read them.
    """

    values: Tensor
    index: Tensor
    divisor: float = 1.0
    products: bool = False
    read: Tensor | None = None
    partial: Tensor | None = None


def summed_by(step: Step, operands: Sequence[Tensor], local: Local, output: int) -> Terms:
    """Return some of the sums of one result of a step, whose name is one of `ACCUMULATING` or `BACKWARD`."""
    if step.name in CONVOLUTIONS:
        return _convolved(step, operands, local, output)
    return (_derived if step.name in BACKWARD else _TERMS[step.name])(step, operands, local)


def softmax_terms(step: Step, operands: Sequence[Tensor]) -> Tensor:
    """Return what the derivative of a softmax (log-softmax) sums up over its dimension: g p (g)."""
    grad, output = operands
    return grad * output if step.name == SOFTMAX_BACKWARD else grad


def _derived(step: Step, operands: Sequence[Tensor], local: Local) -> Terms:
    rows = softmax_terms(step, operands).movedim(int(step.args[2]), -1).flatten(end_dim=-2)
    index = _picked(rows.shape[0], rows.shape[1], rows.device)
    return Terms(rows[index], index, products=step.name == SOFTMAX_BACKWARD, partial=rows.cumsum(1))


def _picked(sums: int, n: int, device: torch.device) -> Tensor:
    """Return indices of some of `sums` results with n terms each."""
    return spread(sums, device, max(1, min(SUMS, TERMS // max(1, n))))


def _reduced(step: Step, operands: Sequence[Tensor], local: Local) -> Terms:
    (values,) = operands
    dims = normal_dims(step.argument(1, "dim"), values.dim())
    kept = [d for d in range(values.dim()) if d not in dims]
    sums, n = (math.prod(values.shape[d] for d in part) for part in (kept, dims))
    rows = values.permute(*kept, *dims).reshape(sums, n)
    index = _picked(sums, n, rows.device)
    return Terms(rows[index], index, n if "mean" in step.name else 1.0, partial=rows.cumsum(1))


def _product(step: Step, operands: Sequence[Tensor], local: Local) -> Terms:
    """[..., M, K] @ [..., K, N], with a summand in front where there are three operands."""
    *summand, a, b = operands
    a, b = (t.unsqueeze(0) if t.dim() == 1 else t for t in (a, b))
    b = b.transpose(0, 1) if operands[-1].dim() == 1 else b
    shape = (*a.shape[:-1], b.shape[-1])
    index = _picked(math.prod(shape), a.shape[-1], a.device)
    places = torch.unravel_index(index, shape)
    lead, row, column = places[:-2], places[-2], places[-1]
    alpha = float(step.kwargs.get("alpha", 1))
    left, right = a[tuple([*lead, row])], b.transpose(-1, -2)[tuple([*lead, column])]
    terms, partial = [left * right * alpha], _partial_products(a, b) * alpha
    name = _read_as(local)
    if name:
        terms.append(narrowed(left, name) * narrowed(right, name) * alpha)
    if summand:
        extra = taken(summand[0].expand(step.shape), index) * float(step.kwargs.get("beta", 1))
        terms = [torch.cat([extra.unsqueeze(1), part], 1) for part in terms]
        partial += summand[0].expand(step.shape).reshape(-1, 1) * float(step.kwargs.get("beta", 1))
    return Terms(terms[0], index, products=True, read=terms[-1] if name else None, partial=partial)


def _partial_products(a: Tensor, b: Tensor) -> Tensor:
    """Return the partial sums of a @ b after each quarter of the terms, [results, 4]."""
    quarters = zip(a.tensor_split(4, -1), b.tensor_split(4, -2), strict=True)
    return torch.stack([left @ right for left, right in quarters], -1).reshape(-1, 4).cumsum(1)


SOFTMAX_BACKWARD = "aten._softmax_backward_data.default"
BACKWARD = (SOFTMAX_BACKWARD, "aten._log_softmax_backward_data.default")
_TERMS: Mapping[str, Callable[[Step, Sequence[Tensor], Local], Terms]] = {
    **dict.fromkeys(("aten.sum.default", "aten.sum.dim_IntList", "prims.sum.default"), _reduced),
    **dict.fromkeys(("aten.mean.default", "aten.mean.dim"), _reduced),
    **dict.fromkeys(("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default"), _product),
    **dict.fromkeys(
        ("aten.vdot.default", "aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default"), _product
    ),
}

CONVOLUTIONS = frozenset({"aten.convolution.default", "aten.convolution_backward.default"})
ACCUMULATING = CONVOLUTIONS | _TERMS.keys()
PRODUCTS = CONVOLUTIONS | {name for name, terms in _TERMS.items() if terms is _product}


def _read_as(local: Local, *, convolution: bool = False) -> str:
    """Return the format that the profile lets float32 operands of products be read in, "" for their own."""
    name = local.profile.matmul_input if local.profile is not None else ""
    if local.profile is not None and convolution:
        name = name or local.profile.convolution_input
    return name if local.step.operand_metas[-1].dtype.itemsize >= 4 else ""


def _convolved(step: Step, operands: Sequence[Tensor], local: Local, output: int) -> Terms:
    """The products of the two tensors that a result is made of, and its bias; the gradient of a bias is a plain sum."""
    meta = step.metas[output]
    size = math.prod(meta.shape) if meta is not None else 0
    length = sum(operand.numel() for operand in operands) // max(1, size)
    index = _picked(size, length, operands[0].device)
    places = registry()[step.name].cone(Call(step, output, index.cpu().numpy(), {}))
    needed = [_gathered(operand, torch.from_numpy(place)) for operand, place in zip(operands, places, strict=False)]
    factors = [values for values in needed if values.shape[1]][:2]
    if len(factors) == 1:
        return Terms(factors[0], index)
    terms, name = [factors[0] * factors[1]], _read_as(local, convolution=True)
    if name:
        terms.append(narrowed(factors[0], name) * narrowed(factors[1], name))
    if len(needed) == 3 and needed[2].shape[1] == 1 and "backward" not in step.name:
        terms = [torch.cat([needed[2], part], 1) for part in terms]
    return Terms(terms[0], index, products=True, read=terms[-1] if name else None)


def _gathered(operand: Tensor, place: Tensor) -> Tensor:
    """Return the elements at flat indices, 0 where the index is -1: beyond the edge."""
    place = place.to(operand.device)
    place = place.unsqueeze(1) if place.dim() == 1 else place
    values = operand.reshape(-1)[place.clamp(min=0)] if place.numel() else operand.new_zeros(place.shape)
    return torch.where(place < 0, 0.0, values)
