"""The example specs: each catalogue entry has one or a reason, all are valid, and the main job passes on them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import exactref
from exactref_cli.spec import read

CONFIGS = Path(__file__).parent.parent / "configs"
SPECS = sorted(CONFIGS.rglob("*.yaml"))

# Entries that a neighbour of the same family stands for.
REPRESENTED = {"silu", "geglu", "sigmoid", "tanh"}


def referenced() -> set[str]:
    targets = [check.reference for spec in SPECS for check in read(spec).checks]
    return {target.removeprefix("exactref:").partition(".")[0] for target in targets if target is not None}


def test_every_catalogue_family_has_an_example() -> None:
    exempt = REPRESENTED | {"cube"}  # cube shows a spec without a reference
    assert set(exactref.catalogue()) - referenced() == exempt


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_example_opens_with_a_comment_that_says_what_it_shows(spec: Path) -> None:
    assert spec.read_text(encoding="utf-8").startswith("# ")


def check(*specs: Path) -> subprocess.CompletedProcess[str]:
    program = "import sys; sys.argv[0] = 'exactref'; from exactref_cli.app import main; main()"
    command = [sys.executable, "-c", program, "check", *map(str, specs)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_check_of_the_first_examples_exits_0_within_a_minute() -> None:
    start = time.monotonic()
    done = check(*CONFIGS.glob("*.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - start < 60
    assert torch.get_num_threads() == 1, "the limit above is for one thread"


@pytest.mark.slow
@pytest.mark.parametrize("spec", sorted(CONFIGS.glob("catalogue/*.yaml")), ids=lambda spec: spec.stem)
def test_check_of_the_catalogues_examples_exits_0(spec: Path) -> None:
    done = check(spec)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_later_entry_has_a_right_kernel_and_a_fault_that_is_caught() -> None:
    expected: dict[str, set[str]] = {}
    for spec in CONFIGS.glob("catalogue/*.yaml"):
        for one in read(spec).checks:
            name = str(one.reference).removeprefix("exactref:").partition(".")[0]
            expected.setdefault(name, set()).add(one.expect)
    assert set(map(frozenset, expected.values())) == {frozenset({"covered", "violated"})}, expected
