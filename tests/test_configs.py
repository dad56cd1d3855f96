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
SPECS = sorted(CONFIGS.glob("*.yaml"))

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


@pytest.mark.slow
def test_check_of_all_examples_exits_0_within_a_minute() -> None:
    program = "import sys; sys.argv[0] = 'exactref'; from exactref_cli.app import main; main()"
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, "check", str(CONFIGS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - start < 60
    assert torch.get_num_threads() == 1, "the limit above is for one thread"
