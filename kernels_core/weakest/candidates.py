"""Arithmetic that differs from a profile in one respect, as users name it and as they would declare it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import torch

from kernels_core.profiles import KNOBS, PROFILES, Profile

Read = Callable[[torch.Tensor], torch.Tensor]

_NAMED: Mapping[str, str] = {
    "ieee": "float32 accumulation and CPU functions",
    "cuda": "tensor-core accumulation and CUDA's functions",
    "triton": "Triton's division and exponential",
    "tf32": "tf32 inputs and tensor-core accumulation",
    "tensorcore-volta": "V100's tensor cores",
    "tensorcore-ampere": "A100's tensor cores",
    "tensorcore-hopper": "H100's tensor cores",
    "fp8-promoted": "13-bit accumulation, promoted to float32",
    "fp8-fast": "13-bit accumulation",
}
_PARTS = (2, 16)  # of a split inner dimension; 2 stand for any number of parts that are added in float32


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One arithmetic.

    Attributes:
        words: what users call it.
        profile: what declares it.
        knob: that was set or widened, "" where the profile is another one by name.
    """

    words: str
    profile: Profile
    knob: str = ""


def candidates(base: Profile) -> Iterator[Candidate]:
    """Yield what is granted beside a profile, one change at a time; what grants less covers nothing more."""
    if base.probabilistic:
        yield Candidate("roundings of the worst case", dataclasses.replace(base, bound="worst-case"), "bound")
    base = dataclasses.replace(base, bound="worst-case", reason="")
    if base.order != "any":
        yield _with(base, "order", "any", "sums in any order")
    if not base.flush_subnormals:
        yield _with(base, "flush_subnormals", True, "subnormals flushed")
    for name in ("tf32", "float16", "bfloat16"):
        if name != base.matmul_input:
            yield _with(base, "matmul_input", name, f"{name} inputs")
    for name in ("float16", "bfloat16"):
        if name != base.accumulate:
            yield _with(base, "accumulate", name, f"{name} accumulation")
    for parts in _PARTS:
        if parts > base.split_k:
            yield _with(base, "split_k", parts, f"a split inner dimension ({parts} parts)")
    for name, words in _NAMED.items():
        if name != base.name:
            profile = _named(name, base)
            yield Candidate(words, profile, "matmul_input" if profile.matmul_input != base.matmul_input else "")


def everything(base: Profile) -> Profile:
    """Return what grants more than every candidate: nothing that it does not cover need be tried."""
    triton, fast = PROFILES["triton"], PROFILES["fp8-fast"]
    ulps = {name: max(profile.ulp(name) for profile in (base, triton, PROFILES["ieee"])) for name in triton.ulp_table}
    return dataclasses.replace(
        base, bound="worst-case", order="any", flush_subnormals=True, matmul_input="bfloat16", accumulate="bfloat16",
        split_k=max(base.split_k, *_PARTS), blocks=fast.blocks, function_ulp=ulps, exp_argument=triton.exp_argument,
    )  # fmt: skip


def _with(base: Profile, knob: str, value: object, words: str) -> Candidate:
    own = tuple(name for name in base.own if name != knob)
    return Candidate(words, dataclasses.replace(base, own=own, **{knob: value}), knob)  # type: ignore[arg-type]


def _named(name: str, base: Profile) -> Profile:
    """Return another profile with all that `base` declares by knobs, its own ones included."""
    other = PROFILES[name]
    kept = {knob: getattr(base, knob) for knob in KNOBS if getattr(base, knob) != getattr(PROFILES["ieee"], knob)}
    return dataclasses.replace(other, **{**kept, **{knob: getattr(other, knob) for knob in other.own}})
