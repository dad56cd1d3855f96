"""The command `exactref power`: the mutation score of the cases of a spec, or of one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from exactref_cli import exits, gradcheck, plan
from exactref_cli.options import Options
from exactref_cli.render import power as screen
from exactref_cli.run import Case
from kernels_core.errors import UsageError
from kernels_core.power import Laboratory, power
from kernels_core.power.score import Score


def cases(options: Options, only: Sequence[str] = ()) -> list[Case]:
    """Return the cases of a spec file, or of the kernel that is named.

    Raises:
        UsageError: an option that a spec decides, or as `gradcheck.cases`.
    """
    if not options.target.endswith(plan.SUFFIXES):
        return gradcheck.cases(options)
    if options.shape or options.reference:
        raise UsageError("--shape and --reference are for a kernel\na spec says them itself")
    return plan.select(plan.from_specs(plan.spec_files([Path(options.target)])), only)


def scores(found: Sequence[Case], limit: int) -> list[tuple[Case, Score]]:
    """Return the score of every case; those that expect a fault are left out.

    Raises:
        UsageError: a kernel is not covered undamaged.
    """
    return [(case, _score(case, limit)) for case in found if case.expect == "covered"]


def _score(case: Case, limit: int) -> Score:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(case.seed)
        drawn = case.inputs()
        laboratory = Laboratory(
            case.function, drawn.values, reference=case.reference, reference_backward=case.reference_backward,
            surrogate=case.surrogate, wrt=drawn.wrt, seed=case.seed, profile=case.profile,
            bound=case.bound, kinks=case.kinks,
        )  # fmt: skip
        return power(laboratory, limit)


def deliver(found: Sequence[tuple[Case, Score]], form: str) -> int:
    """Print the scores and return the exit code: 4 where a mutant is missed, 5 where there is none.

    Raises:
        UsageError: an unknown form.
    """
    if form not in ("table", "json"):
        raise UsageError(f"--format: wanted table or json, found {form!r}")
    if form == "json":
        screen.print_json(found)
    else:
        screen.show(found)
    if not any(score.counted for _, score in found):
        return exits.NOTHING
    return exits.NOT_DECIDED if any(score.missed for _, score in found) else exits.COVERED
