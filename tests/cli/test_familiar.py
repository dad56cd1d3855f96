"""The options of gradcheck are taken where they mean something, and refused with a reason where they do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exactref_cli.familiar import translated
from kernels_core.battery import ITEMS, select

Engine = Callable[..., list[dict[str, Any]]]
Call = Callable[..., tuple[int, str, str]]
DOCUMENT = (Path(__file__).parents[2] / "docs" / "from_gradcheck.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["--fast"], ["--battery", "none"]),
        (["--fast_mode"], ["--battery", "none"]),
        (["--check-undefined-grad", "--raise-exception"], []),
        (["--no-check-batched-grad"], ["--without", "vmap"]),
        (["--no_check_forward_ad"], ["--without", "forward_mode"]),
        (["--no-check-grad-dtypes"], ["--without", "raw_backward"]),
        (["--nondet_tol", "0"], ["--nondet-tol", "0"]),
        (["--shape", "my_x=3x4"], ["--shape", "my_x=3x4"]),
    ],
)
def test_names_of_gradcheck_are_taken(words: list[str], ours: list[str]) -> None:
    assert translated(["gradcheck", "k:f", *words]) == ["gradcheck", "k:f", *ours]


@pytest.mark.parametrize("option", ["--eps=1e-3", "--atol", "--rtol", "--masked"])
def test_options_without_a_meaning_are_refused_with_the_reason(exactref: Call, option: str) -> None:
    code, out, err = exactref("gradcheck", "kernels:Square", option, "1e-3")
    assert (code, out) == (2, "")
    assert err.startswith(f"{option.partition('=')[0]}: ")
    assert len(err.splitlines()) == 1


def test_items_are_left_out_and_the_tolerance_of_determinism_is_passed_on(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    calls = engine(reports.report(reports.violated_row()))
    _, out, _ = exactref("gradcheck", "kernels:Square", "--no-check-batched-grad", "--nondet-tol", "0.5")
    assert {item.name for item in select(calls[0]["battery"])} == set(ITEMS) - {"vmap"}
    assert calls[0]["settings"].nondet_tol == 0.5
    assert "--without vmap --nondet-tol 0.5" in " ".join(out.split())


def test_surrogate_needs_a_declared_backward(folder: Path, exactref: Call) -> None:
    code, _, err = exactref("gradcheck", "kernels:Square", "--surrogate")
    assert (code, err) == (2, "--surrogate: wanted a --reference-backward that is the surrogate, found none\n")


def test_every_parameter_of_gradcheck_is_in_the_document() -> None:
    import inspect

    import torch

    for function in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        missing = [name for name in inspect.signature(function).parameters if f"`{name}`" not in DOCUMENT]
        assert missing == []


def test_schema_is_a_json_schema_of_the_spec(exactref: Call) -> None:
    code, out, _ = exactref("schema")
    found = json.loads(out)
    assert code == 0
    assert set(found["properties"]) == {"version", "checks"}
    assert "dict" in found["$defs"]["Input"]["properties"]
