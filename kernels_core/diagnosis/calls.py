"""Hypotheses about what happens between calls: a result kept from an earlier one, a saved tensor overwritten."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis
from kernels_core.eight_bits import equal, widened
from kernels_core.errors import ExactRefError
from kernels_core.tracing.arguments import with_tensors

Tensor = torch.Tensor


def _stale(evidence: Evidence) -> Iterator[Candidate]:
    """For other inputs and upstream gradients the kernel returns the same, bit for bit; the exact result is another."""
    setting = evidence.setting
    if setting is None or setting.again is None or setting.late():
        return
    others = {name: other_values(t) for name, t in setting.check.tensors.items()}
    arguments = with_tensors(setting.check.arguments, others)
    admitted = setting.admits("other inputs", arguments=arguments)
    if admitted is None:
        return
    name = evidence.result.name
    try:
        returned = setting.again(arguments, [other_values(grad) for grad in setting.upstream]).get(name)
    except Exception:  # the kernel refuses these inputs
        return
    moved = (admitted[name].mid - evidence.mid).abs() > admitted[name].bound_or_zero() + evidence.bound
    if returned is not None and equal(returned, evidence.actual) and bool(moved.any()):
        yield Candidate("stale: {count} the same, bit for bit, for other inputs: kept from an earlier call",
                        evidence.value, torch.zeros_like(evidence.mid), known=torch.inf)  # fmt: skip


def _depends_on_calls(evidence: Evidence) -> Iterator[Candidate]:
    """The same call again is covered."""
    setting = evidence.setting
    if setting is None or setting.again is None or setting.late():
        return
    try:
        returned = setting.again(setting.check.arguments).get(evidence.result.name)
        covered = returned is not None and bool(evidence.result.covers(returned).all())
    except (ExactRefError, RuntimeError):
        return
    if covered:
        yield Candidate("depends on earlier calls: {count} covered when the same call is made again",
                        evidence.value, torch.zeros_like(evidence.mid), known=torch.inf)  # fmt: skip


def other_values(tensor: Tensor) -> Tensor:
    """Return other values of the same kind: the elements in reverse order, floating ones halved."""
    turned = widened(tensor).reshape(-1).flip(0).reshape(tensor.shape)
    return (turned / 2 if tensor.is_floating_point() else turned).to(tensor.dtype)


def _overwritten(evidence: Evidence) -> Iterator[Candidate]:
    """The gradient at inputs that the forward (or the backward) wrote another tensor into."""
    setting = evidence.setting
    if setting is None or not evidence.gradient:
        return
    for name, tensor in setting.check.tensors.items():
        for other, value in _writable(evidence, tensor).items():
            if equal(value, tensor):
                continue
            placed = with_tensors(setting.check.arguments, {name: value})
            admitted = setting.admits(("overwritten", name, other), arguments=placed)
            if admitted is not None:
                found = admitted[evidence.result.name]
                sentence = f"saved tensor overwritten: {{count}} those with {other} in the place of {name}"
                yield Candidate(sentence, found.mid, found.bound_or_zero())


def _writable(evidence: Evidence, tensor: Tensor) -> dict[str, Tensor]:
    setting = evidence.setting
    if setting is None or not tensor.is_floating_point():
        return {}
    given = {**{n: t for n, t in setting.actual.items() if t is not None and not n.startswith("grad_")}}
    given.update({n: t for n, t in setting.check.tensors.items() if t is not tensor})
    given.update({f"the upstream gradient of {n}": g
                  for n, g in zip(setting.check.cotangents, setting.upstream, strict=True)})  # fmt: skip
    given["zeros"] = torch.zeros_like(tensor)
    return {n: t for n, t in given.items() if t.shape == tensor.shape and t.dtype == tensor.dtype}


HYPOTHESES = (
    Hypothesis("saved tensor overwritten", "the gradient with another tensor in an input's place", _overwritten),
    Hypothesis("stale", "the same result for other inputs", _stale),
    Hypothesis("depends on earlier calls", "the same call again is covered", _depends_on_calls),
)
