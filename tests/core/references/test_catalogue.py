"""Every entry of the catalogue covers its own evaluation by PyTorch, and no other number of its size."""

from typing import Any

import pytest
import torch

from benchmarks.catalogue_examples import EXAMPLES, Draw, cases
from kernels_core.reference import Reference
from kernels_core.references import catalogue
from tests.core.references.evaluation import evaluated

# Planted errors that the widest bound among the entries excludes at these sizes, as factors.
PLANTED = {torch.float32: 1.001, torch.float16: 1.03, torch.bfloat16: 1.1}

every_dtype = pytest.mark.parametrize("dtype", PLANTED, ids=lambda dtype: str(dtype)[len("torch.") :])


def test_every_entry_has_an_example() -> None:
    assert {name.partition(",")[0] for name in EXAMPLES} == set(catalogue())


@every_dtype
@pytest.mark.parametrize(("reference", "make"), [pytest.param(*rest, id=name) for name, *rest in cases()])
def test_entry_covers_its_own_evaluation_by_pytorch_and_catches_errors(
    reference: Reference, make: Any, dtype: torch.dtype
) -> None:
    args = make(Draw(dtype))
    outputs, grad, gradients = evaluated(reference, args)
    results = reference(**args)
    named = {result.name: result for result in (results if isinstance(results, tuple) else (results,))}
    named |= reference.backward(grad, **args)
    for (name, result), actual in zip(named.items(), [*outputs, *gradients], strict=True):
        assert result.covers(actual).all(), name
        assert not result.covers(actual * PLANTED[dtype]).all() or not actual.any(), name
