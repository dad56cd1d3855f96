"""Upstream gradients of other sizes than a friendly loss gives: huge, tiny, of mixed sizes, and sparse.

The gradient is linear in the upstream gradient: 2^k g has 2^k times the gradient of g, in every correct kernel, as long
as nothing overflows or vanishes on the way. A kernel that clips, flushes or asks for a size is not linear. Huge and
tiny ones are as large, and as small, as leaves a quarter of the format's exponents to what the kernel makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch

from kernels_core.battery.comparable import finite_range
from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.natively import outside
from kernels_core.battery.subject import Subject
from kernels_core.reference import Result
from kernels_core.tracing.complex_parts import parts_of, widest

Tensor = torch.Tensor
SEED = 0x512E
SHARE = 0.75  # of the format's exponents that an upstream gradient or a gradient takes
MIXED = 0.25  # of the exponents on either side, for sizes that differ from element to element


def _grad_output_values(subject: Subject) -> Finding:
    if not subject.wrt or not subject.upstream:
        return not_applicable("nothing is differentiated")
    judgement, left_out = Judgement(subject), []
    for label, upstream in _families(subject):
        strict, results = Judgement(subject), subject.results_for(label, upstream)
        with strict.trying(label):
            gradients = subject.run(upstream=[g.clone() for g in upstream])
            strict.look(label, {n: g for n, g in gradients.items() if n.startswith("grad_")}, results, doubts=False)
        if strict.faults and outside(subject.check, upstream, _gradients(results)):
            left_out.append(label)
            continue
        judgement.faults += strict.faults
        judgement.done += strict.done
    rest = [f"not judged, as PyTorch itself leaves the bounds: {', '.join(left_out)}"] if left_out else []
    return judgement.finding("; ".join([", ".join(judgement.done)] * bool(judgement.done) + rest), noted=bool(rest))


def _gradients(results: Mapping[str, Result]) -> dict[str, Result]:
    return {name: result for name, result in results.items() if name.startswith("grad_")}


def _families(subject: Subject) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield upstream gradients with what they are called; one value stands for every element that is not zero."""
    up, down = _room(subject)
    generator = torch.Generator().manual_seed(SEED + subject.settings.seed)
    if up > 0:
        yield f"huge (2^{up} times as large)", [_scaled(g, up) for g in subject.upstream]
    if down > 0:
        yield f"tiny (2^-{down} times as large)", [_scaled(g, -down) for g in subject.upstream]
    yield "of mixed sizes", [_mixed(g, generator) for g in subject.upstream]
    if any(g.numel() > 1 for g in subject.upstream):
        yield "a single one among zeros", [_one_hot(g, generator) for g in subject.upstream]


def _room(subject: Subject) -> tuple[int, int]:
    """Return by how many powers of two the upstream gradient may grow, and shrink."""
    sizes = [(part.dtype, part) for g in subject.upstream for part in parts_of(g)]
    sizes += [(r.meta.dtype, r.enclosure.mid) for n, r in subject.results.items()
              if n.startswith("grad_") and r.enclosure.floating]  # fmt: skip
    up, down = math.inf, math.inf
    for dtype, values in sizes:
        ends = finite_range(values)
        largest = max(abs(end.item()) for end in ends) if ends else 0.0
        if largest:
            info = torch.finfo(dtype)
            up = min(up, SHARE * math.log2(info.max) - math.log2(largest))
            down = min(down, math.log2(largest) - SHARE * math.log2(info.smallest_normal))
    return (int(up) if up < math.inf else 0), (int(down) if down < math.inf else 0)


def _scaled(given: Tensor, exponent: int) -> Tensor:
    return (widest(given) * 2.0**exponent).to(given.dtype)


def _mixed(given: Tensor, generator: torch.Generator) -> Tensor:
    most = max(1, int(MIXED * math.log2(torch.finfo(given.dtype).max)))
    exponent = torch.randint(-most, most + 1, given.shape, generator=generator).to(given.device)
    return (widest(given) * torch.exp2(exponent.to(torch.float64))).to(given.dtype)


def _one_hot(given: Tensor, generator: torch.Generator) -> Tensor:
    found = torch.zeros_like(given)
    if given.numel():
        found.view(-1)[int(torch.randint(given.numel(), (), generator=generator))] = 1.5
    return found


ITEMS = (
    Item("grad_output_values", "upstream gradients that are huge, tiny, of mixed sizes, zero but for one element",
         _grad_output_values),
)  # fmt: skip
