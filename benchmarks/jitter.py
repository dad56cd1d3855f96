"""Moves the result of every floating operation by up to one unit roundoff: what rounding really does, sampled."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

MOVES_ONLY = frozenset(
    "clone _to_copy detach expand index gather cat stack masked_fill where zeros ones full zeros_like ones_like "
    "full_like flip roll view reshape abs neg relu clamp maximum minimum copy_ select slice permute transpose t "
    "unsqueeze squeeze real imag complex view_as_real view_as_complex conj _conj".split()
)


class Jitter(TorchDispatchMode):
    """Multiplies results by 1 + u d, d uniform in [-1, 1]."""

    def __init__(self, seed: int) -> None:
        """Draw from this seed."""
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and move its result."""
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, torch.Tensor) or func.overloadpacket.__name__ in MOVES_ONLY:
            return out
        if out.is_complex():
            return torch.complex(self.moved(out.real), self.moved(out.imag))
        return self.moved(out) if out.is_floating_point() else out

    def moved(self, x: torch.Tensor) -> torch.Tensor:
        """Return the values times 1 + u d."""
        noise = 2 * torch.rand(x.shape, generator=self.generator, dtype=torch.float64) - 1
        return (x.double() * (1 + noise * torch.finfo(x.dtype).eps / 2)).to(x.dtype)
