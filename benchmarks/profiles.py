"""Profiles against recorded hardware and simulated legal evaluations: how near the grants come to what is seen.

python -m benchmarks.profiles

For each file of recorded tensor-core outputs: rows covered by the matching profile, the largest share of the bound that
a row needs and its inverse, and rows that `ieee` rejects. Then the same share for simulated chains of instructions.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.profiles import resolve
from tests.core.profiles import simulated
from tests.core.profiles.test_recorded import FILES, granted
from tests.core.profiles.test_tensorcore import GENERATIONS, KINDS, ROWS, operands, product


def recorded() -> None:
    """Print one line for each file."""
    sys.stdout.write(f"{'file':12}{'profile':40}{'covered':>10}{'bound / error':>15}{'ieee rejects':>14}\n")
    for file in FILES:
        result, actual = granted(file.name, file.profile)
        used = ((actual.double() - result.enclosure.mid).abs() / result.enclosure.bound_or_zero()).max()
        plain, _ = granted(file.name, "ieee")
        rejected = int((plain.verdict(actual) == Element.VIOLATED).sum())
        title = resolve(file.profile).title  # type: ignore[arg-type]
        covered = int(result.covers(actual).sum())
        sys.stdout.write(f"{file.name:12}{title:40}{covered:>10}{1 / float(used):>15.2f}{rejected:>14}\n")


def chains(inner: int = 2048) -> None:
    """Print, for each accumulator, the largest share of its grant that a simulated chain of instructions needs."""
    sys.stdout.write(f"\nsimulated chains of {inner} products, largest error / bound\n")
    sys.stdout.write(f"{'profile':20}" + "".join(f"{kind:>12}" for kind in KINDS) + "\n")
    for name, (n, fraction, output) in [*GENERATIONS.items(), ("fp8-promoted", (32, 13, 13))]:
        line = f"{name:20}"
        for kind in KINDS:
            a, b, _ = operands(kind, inner, seed=1)
            numbers = {"fraction": fraction, "output": output, "smallest": -14}
            if name == "fp8-promoted":
                found = simulated.chains(a, b, n, 128, **numbers)
            else:
                found = simulated.chain(a, b, np.zeros(ROWS), n, **numbers)
            given = {"a": torch.from_numpy(a).float()[:, None], "b": torch.from_numpy(b).float()[..., None]}
            result = Check(product, given, profile=name).outputs()["output"]
            off = (torch.from_numpy(found)[:, None, None] - result.enclosure.mid).abs()
            line += f"{float((off / result.enclosure.bound_or_zero().clamp(min=1e-300)).max()):>12.3f}"
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    recorded()
    chains()
