"""Every rule contains FLINT's value at 300 bits; a rule without a case is a failure.

containment_entries.json names, for each rule, an entry of PyTorch's operator database whose program reaches it, as
`python benchmarks/containment.py --json FILE` found it: that run compares them all, here are some.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from benchmarks.contained import Found, check_program
from benchmarks.containment import check_case, programs
from benchmarks.containment_cases import CASES, WITHOUT
from benchmarks.operators import entries, title
from kernels_core import rules
from kernels_core.doubles.operations import OPERATIONS
from kernels_core.rules import registry

ENTRIES: Mapping[str, str] = json.loads(pathlib.Path(__file__).with_name("containment_entries.json").read_text())
HERE = ("addmm", "cumsum", "linalg.inv", "nn.functional.layer_norm", "nn.functional.max_pool2d", "softmax", "sort")

WITHOUT_FLOATS = {"aten.bitwise_xor.Tensor", "aten.logical_xor.default", "aten.where.Scalar"}  # their cases are of bits


@functools.cache
def database() -> dict[str, Any]:
    return {title(op): op for op in entries(torch.float32)}


def test_every_rule_has_a_case() -> None:
    assert set(registry()) - set(ENTRIES) - set(CASES) - set(WITHOUT) == set()
    assert (set(ENTRIES) | set(CASES) | set(WITHOUT)) - set(registry()) == set()
    assert set(ENTRIES.values()) <= set(database())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_rules_contain_the_exact_value_of_their_case(dtype: torch.dtype) -> None:
    total = Found()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in CASES:
            total.add(check_case(name, dtype))
    assert total.wrong == []
    assert set(CASES) - set(+total.compared) == set()
    if dtype is torch.float64:
        assert set(CASES) & set(OPERATIONS) - set(+total.doubled) == WITHOUT_FLOATS


@pytest.mark.parametrize("entry", HERE)
def test_rules_contain_the_exact_value_in_a_program(entry: str) -> None:
    found = Found()
    for program, inputs in programs(database()[entry], torch.float32, 1):
        found.add(check_program(program, inputs, often=1))
    assert found.wrong == []
    assert {rule for rule, where in ENTRIES.items() if where == entry} <= set(+found.compared)


@pytest.mark.parametrize("entry", HERE)
def test_double_doubles_contain_the_exact_value_in_a_program(entry: str) -> None:
    found = Found()
    for program, inputs in programs(database()[entry], torch.float64, 1):
        found.add(check_program(program, inputs, often=1))
    assert found.wrong == []
    assert +found.doubled


def test_a_double_double_that_is_off_by_more_than_its_radius_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(*args: Any) -> Any:
        value = OPERATIONS["prims.sin.default"](*args)
        return dataclasses.replace(value, lo=value.lo + value.hi * 2.0**-90)

    monkeypatch.setattr("kernels_core.doubles.evaluation.OPERATIONS", {**OPERATIONS, "prims.sin.default": off})
    assert check_case("prims.sin.default", torch.float64).wrong


def test_a_rule_that_is_off_by_more_than_its_radius_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sine = registry()["aten.sin.default"]

    def off(local: Any, a: Any) -> Any:
        value = sine.bound(local, a)
        return dataclasses.replace(value, mid=value.mid * (1 + 1e-13))

    changed = {**registry(), "prims.sin.default": dataclasses.replace(sine, bound=off)}
    monkeypatch.setattr(rules, "registry", lambda: changed)
    monkeypatch.setattr("kernels_core.filter.evaluation.registry", lambda: changed)
    assert check_case("prims.sin.default", torch.float32).wrong
