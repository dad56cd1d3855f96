"""The mutation score of exactref on its catalogue, with gradcheck and assert_close on the same mutants.

    python -m benchmarks.power [--limit N] [--production] [--no-gradcheck] [--log FILE] [name ...]

Every reference is run by PyTorch in float32, bfloat16 and float16 and damaged (kernels_core/power). Undamaged it must
be covered. assert_close, with its defaults, compares the damaged results with the undamaged ones. gradcheck, with its
defaults, gets the kernel in float64 with the same fault planted, where its inputs have 64 elements at most: it runs the
kernel twice for each of them, so its cost grows with the square of the size; --gradcheck-cost measures that. Equivalent
and legal mutants count for nobody; a missed one is printed with its size. Returns 1 where an undamaged kernel is not
covered.

With --log every case is added to a file, and the cases that it holds are not run again; `--seconds` ends a run after
the case under way, and the table is of what the log then holds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
import time
import warnings
from collections.abc import Iterator

import torch

import exactref as er
from benchmarks.catalogue_cases import Case, cases
from benchmarks.gradcheck_twin import MOST, Twin, growth
from benchmarks.power_table import Row, show
from kernels_core.errors import ExactRefError
from kernels_core.power import Laboratory, power
from kernels_core.power.score import Fate, Mutant

Tensor = torch.Tensor


def close(mutant: Mutant, laboratory: Laboratory) -> bool:
    """Return True where assert_close accepts every damaged result."""
    for name, value in (mutant.damaged or {}).items():
        try:
            torch.testing.assert_close(value, laboratory.undamaged[name])
        except AssertionError:
            return False
    return mutant.damaged is not None


def scored(case: Case, limit: int, gradcheck: bool) -> Row:
    """Return the scores of one case by exactref, assert_close and gradcheck."""
    sizes = {name: list(value.shape) for name, value in case.inputs.items() if isinstance(value, Tensor)}
    try:
        laboratory = Laboratory(case.kernel, case.inputs, reference=case.reference, wrt=case.wrt)
    except ExactRefError as error:
        return Row(case.title, sizes, alarm=str(error))
    score = power(laboratory, limit)
    real = [mutant for mutant in score.mutants if mutant.fate not in (Fate.EQUIVALENT, Fate.LEGAL)]
    checked, rejected = _gradcheck(laboratory, real) if gradcheck else (0, 0)
    return Row(
        case.title,
        sizes,
        mutants=len(score.mutants),
        real=len(real),
        caught=score.caught,
        suspect=score.count(Fate.SUSPECT),
        legal=score.count(Fate.LEGAL),
        close=sum(not close(mutant, laboratory) for mutant in real),
        checked=checked,
        gradcheck=rejected,
        missed=[f"{mutant.kind}, {mutant.place}: {mutant.reason}" for mutant in score.missed],
    )


def _gradcheck(laboratory: Laboratory, real: list[Mutant]) -> tuple[int, int]:
    """Return how many mutants gradcheck was given and how many it rejects; none where it rejects the kernel itself."""
    twin = Twin(laboratory)
    if twin.elements > MOST or not twin.passes(None):
        return 0, 0
    return len(real), sum(not twin.passes(mutant) for mutant in real)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of the log, then those of the cases that it lacks, adding them to it."""
    log: pathlib.Path | None = options.log
    done = [Row(**json.loads(line)) for line in log.read_text().splitlines()] if log and log.exists() else []
    yield from done
    titles, start = {row.title for row in done}, time.monotonic()
    for case in cases(options.names, options.production):
        if case.title in titles or time.monotonic() - start > options.seconds:
            continue
        row = scored(case, options.limit, not options.no_gradcheck)
        if log:
            with log.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(row)) + "\n")
        yield row


def main() -> int:
    """Print the table; return 1 where an undamaged kernel is not covered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(er.catalogue()))
    parser.add_argument("--limit", type=int, default=60, help="mutants of single operations per case")
    parser.add_argument("--production", action="store_true", help="at shapes as in production")
    parser.add_argument("--no-gradcheck", action="store_true", help="leave out the score of gradcheck")
    parser.add_argument("--log", type=pathlib.Path, help="keep the rows here, and go on from those that it holds")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case after so many seconds")
    parser.add_argument("--gradcheck-cost", action="store_true", help="seconds of gradcheck by size, nothing else")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.gradcheck_cost:
        for size, seconds in growth():
            print(f"{size:>6} elements {seconds:>8.2f} s")
        return 0
    start = time.process_time()
    alarms = show(rows(options))
    print(f"{alarms} false alarms on undamaged kernels; {time.process_time() - start:.0f} s")
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
