"""A reference with some of its operations replaced while it is called: what a kernel of another variant computes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernels_core.diagnosis.evidence import Candidate, Evidence
from kernels_core.errors import TraceError
from kernels_core.reference import Reference
from kernels_core.tracing.arguments import signature_of
from kernels_core.tracing.composites import COMPOSITES


class Rewriting(TorchFunctionMode):
    """Within this, calls that `rewrite` takes are replaced; composites are seen by their parts.

    Attributes:
        used: True once a call was replaced.
    """

    def __init__(self) -> None:
        """Start with nothing replaced and nothing remembered."""
        super().__init__()
        self.used = False
        self._kept: dict[int, tuple[torch.Tensor, Any]] = {}

    def rewrite(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the replacement's result, or NotImplemented to leave the call as it is.

        Args:
            name: of the function without underscores around it, so that `x + 1` and torch.add are both "add".
            func: to be called for the original result.
            args: of the call.
            kwargs: of the call.
        """
        return NotImplemented

    def remember(self, tensor: torch.Tensor, what: Any) -> torch.Tensor:
        """Keep what a tensor is, and return the tensor."""
        self._kept[id(tensor)] = (tensor, what)
        return tensor

    def recall(self, tensor: Any) -> Any:
        """Return what was kept about a tensor, None where nothing was."""
        return self._kept.get(id(tensor), (None, None))[1]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the call where `rewrite` does."""
        kwargs = kwargs or {}
        if func in COMPOSITES:
            with self:
                return COMPOSITES[func](*args, **kwargs)
        result = self.rewrite(getattr(func, "__name__", "").strip("_"), func, args, kwargs)
        if result is NotImplemented:
            return func(*args, **kwargs)
        return result


def varied(evidence: Evidence, key: Any, make: Callable[[], Rewriting], sentence: str) -> Iterator[Candidate]:
    """Yield what the rewritten reference admits, nothing where no call of it was replaced."""
    if evidence.setting is None:
        return
    admitted = evidence.setting.admits(key, reference=_rewritten(evidence.setting.check.reference, make))
    if admitted is not None:
        found = admitted[evidence.result.name]
        yield Candidate(sentence, found.mid, found.bound_or_zero())


def _rewritten(reference: Reference, make: Callable[[], Rewriting]) -> Reference:
    function = reference.function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with make() as mode:
            result = function(*args, **kwargs)
        if not mode.used:
            raise TraceError("nothing was replaced")
        return result

    call.__signature__ = signature_of(function)  # type: ignore[attr-defined]
    return dataclasses.replace(reference, function=call, declared=None, surrogate=False)
