"""The exit code of many outcomes is that of the worst."""

import pytest

from exactref_cli import exits
from exactref_cli.run import judge
from kernels_core.report import Verdict


@pytest.mark.parametrize(
    ("codes", "worst"),
    [([], 5), ([0, 0], 0), ([0, 5], 5), ([5, 4, 0], 4), ([4, 2], 2), ([4, 1, 5, 2], 1), ([1, 3, 4], 3)],
)
def test_worst_code_wins(codes: list[int], worst: int) -> None:
    assert exits.worst(codes) == worst


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_code(verdict: Verdict) -> None:
    assert (exits.of_verdict(verdict) == exits.COVERED) == (verdict is Verdict.COVERED)


@pytest.mark.parametrize(
    ("verdict", "expect", "code"),
    [
        (Verdict.VIOLATED, "violated", 0),
        (Verdict.COVERED, "violated", 1),
        (Verdict.RAISED, "violated", 1),
        (Verdict.UNDECIDED, "violated", 4),
        (Verdict.RAISED, "raised", 0),
        (Verdict.VIOLATED, "raised", 1),
        (Verdict.NOTHING, "covered", 5),
    ],
)
def test_expectation_is_strict(verdict: Verdict, expect: str, code: int) -> None:
    assert judge(verdict, expect) == code
