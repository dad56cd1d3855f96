"""The mutation score of exactref on its catalogue, with gradcheck and assert_close on the same mutants.

    python -m benchmarks.power [--limit N] [--production] [name ...]

Every reference is run by PyTorch in float32, bfloat16 and float16 and damaged (kernels_core/power). Undamaged it must
be covered. assert_close, with its defaults, compares the damaged results with the undamaged ones. gradcheck, with its
defaults, gets the kernel in float64 with the same fault planted, where its inputs have 64 elements at most: it runs the
kernel twice for each of them, so its cost grows with the square of the size; --gradcheck-cost measures that. Equivalent
mutants count for nobody. Returns 1 where an undamaged kernel is not covered.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
import warnings
from collections.abc import Mapping

import torch

import exactref as er
from benchmarks.catalogue_cases import Case, cases
from benchmarks.gradcheck_twin import MOST, Twin, growth
from kernels_core.errors import ExactRefError
from kernels_core.power import Laboratory, power
from kernels_core.power.score import Fate, Mutant, Score

Tensor = torch.Tensor


def close(mutant: Mutant, laboratory: Laboratory) -> bool:
    """Return True where assert_close accepts every damaged result."""
    for name, value in (mutant.damaged or {}).items():
        try:
            torch.testing.assert_close(value, laboratory.undamaged[name])
        except AssertionError:
            return False
    return mutant.damaged is not None


class Table:
    """One line per case, followed by the mutants that it missed."""

    def __init__(self) -> None:
        """Print the heading."""
        self.totals: collections.Counter[str] = collections.Counter()
        self.least = 1.0
        self.rejected: list[str] = []
        self._row("case", "mutants", "equiv.", "caught", "suspect", "share", "close", "gradcheck")

    def _row(self, *cells: object) -> None:
        case, *others = map(str, cells)
        print(f"{case:<28}" + "".join(f"{cell:>10}" for cell in others), flush=True)

    def add(self, case: Case, laboratory: Laboratory, score: Score) -> None:
        """Score the other two on the same mutants and print the line."""
        title = f"{case.name} {str(case.dtype)[6:]}"
        real = [mutant for mutant in score.mutants if mutant.fate is not Fate.EQUIVALENT]
        found = {"real": len(real), "caught": score.caught, "close": sum(not close(m, laboratory) for m in real)}
        twin = Twin(laboratory)
        if twin.elements <= MOST and not twin.passes(None):
            self.rejected.append(title)
        elif twin.elements <= MOST:
            found |= {"checked": len(real), "gradcheck": sum(not twin.passes(m) for m in real)}
        self.totals.update(found)
        self.least = min(self.least, score.caught / max(1, len(real)))
        self._line(title, len(score.mutants), score.count(Fate.SUSPECT), found)
        for mutant in score.missed:
            print(f"    missed: {mutant.kind}, {mutant.place}", flush=True)

    def _line(self, case: str, mutants: int, suspect: int, found: Mapping[str, int]) -> None:
        real = max(1, found["real"])
        checked = f"{found['gradcheck'] / found['checked']:.1%}" if found.get("checked") else "-"
        self._row(case, mutants, mutants - found["real"], found["caught"], suspect,
                  f"{found['caught'] / real:.1%}", f"{found['close'] / real:.1%}", checked)  # fmt: skip

    def close(self) -> None:
        """Print the totals and the least share of a case."""
        self._line("all", self.totals["real"], 0, self.totals)
        print(f"least share of a case {self.least:.1%}; gradcheck scored on {self.totals['checked']} mutants")
        for title in self.rejected:
            print(f"gradcheck rejects the undamaged kernel: {title}")


def main() -> int:
    """Print the table; return 1 where an undamaged kernel is not covered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(er.catalogue()))
    parser.add_argument("--limit", type=int, default=60, help="mutants of single operations per case")
    parser.add_argument("--production", action="store_true", help="at shapes as in production")
    parser.add_argument("--gradcheck-cost", action="store_true", help="seconds of gradcheck by size, nothing else")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.gradcheck_cost:
        for size, seconds in growth():
            print(f"{size:>6} elements {seconds:>8.2f} s")
        return 0
    table, alarms, start = Table(), 0, time.process_time()
    for case in cases(options.names, options.production):
        try:
            laboratory = Laboratory(case.kernel, case.inputs, reference=case.reference, wrt=case.wrt)
        except ExactRefError as error:
            alarms += 1
            print(f"FALSE ALARM {case.name} {str(case.dtype)[6:]}: {error}")
            continue
        table.add(case, laboratory, power(laboratory, options.limit))
    table.close()
    print(f"{alarms} false alarms on undamaged kernels; {time.process_time() - start:.0f} s")
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
