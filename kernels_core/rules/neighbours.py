"""nextafter: the neighbour of a value in its own format, in the direction of another.

It is defined on values of the format alone: where its operands depend on roundings, nothing is known of the result.
The operation itself rounds nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels_core.enclosure import Enclosure
from kernels_core.exact.numbers import NotSeparatedError
from kernels_core.filter.arithmetic import Local
from kernels_core.rules.cones import broadcast_cone, elementwise_tiles
from kernels_core.rules.operands import parts, plus
from kernels_core.rules.record import Family, Rule


def nextafter(local: Local, a: Any, b: Any) -> Enclosure:
    """Return the neighbour of a towards b in the format of the result."""
    (x, x_bound), (y, y_bound) = parts(a), parts(b)
    mid = torch.nextafter(*(torch.as_tensor(v).to(local.nominal) for v in (x, y))).double()
    bound = plus(x_bound, y_bound)
    if bound is None:
        return Enclosure(mid, None)
    return Enclosure(mid, torch.where(bound == 0, 0.0, torch.inf).expand(mid.shape))


def _exact(call: Any, a: Any, b: Any) -> Any:
    def neighbour(x: Any, y: Any) -> Any:
        pair = [torch.tensor(float(v.p) / float(v.q) if hasattr(v, "q") else float(v.mid())) for v in (x, y)]
        for value, given in zip(pair, (x, y), strict=True):
            if call.numbers.of(float(value)) != given:
                raise NotSeparatedError
        return call.numbers.of(float(torch.nextafter(*(v.to(call.meta.dtype) for v in pair))))

    return call.numbers.each(neighbour, a, b)


FAMILY = Family()
FAMILY.add(
    Rule("aten.nextafter.default", nextafter, broadcast_cone, _exact, elementwise_tiles),
)
