"""Hypotheses about precision: results that a narrower format holds, inputs that were rounded to one first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import torch

from kernels_core.diagnosis.evidence import Candidate, Evidence, Hypothesis, Setting
from kernels_core.eight_bits import equal
from kernels_core.formats import BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT16, FLOAT32, Format, format_of
from kernels_core.formats import round_to_nearest as rounded
from kernels_core.tracing.arguments import cotangent_name, with_tensors

Tensor = torch.Tensor
PREFIX = "another precision"
TF32 = Format("tf32", torch.float32, 11, -126, 127, FLOAT32.max_finite)
_NARROW = (FLOAT32, FLOAT16, TF32, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2)


def narrower(dtype: torch.dtype) -> list[Format]:
    """Return the formats with fewer bits than `dtype`, widest first."""
    precision = format_of(dtype).precision
    return [fmt for fmt in _NARROW if fmt.precision < precision]


def _result_rounded(evidence: Evidence) -> Iterator[Candidate]:
    """The narrowest format that holds every failing value, though it does not hold the exact ones."""
    values, exact = evidence.value[evidence.failing], evidence.mid[evidence.failing]
    for fmt in sorted(narrower(evidence.actual.dtype), key=lambda fmt: fmt.precision):
        if bool(values.isfinite().all()) and bool((rounded(values, fmt) == values).all()):
            telling = values[rounded(exact, fmt) != rounded(exact, format_of(evidence.actual.dtype))].unique()
            # A value of the wider format is one of the narrower by chance with probability 2^-(bits between).
            bits = float((format_of(evidence.actual.dtype).precision - fmt.precision) * len(telling))
            wide = evidence.bound + fmt.unit_roundoff * (evidence.mid.abs() + evidence.bound) + fmt.eta
            yield Candidate(f"{PREFIX}: {{count}} rounded to {fmt.name}", evidence.mid, wide, known=bits)
            yield Candidate(f"{PREFIX}: {{count}} {fmt.name} values, off by more than one rounding to it",
                            evidence.mid, torch.full_like(evidence.mid, torch.inf), known=bits)  # fmt: skip


def _inputs_rounded(evidence: Evidence) -> Iterator[Candidate]:
    setting = evidence.setting
    if setting is None:
        return
    given = _floating(setting, evidence.gradient)
    for fmt in narrower(evidence.actual.dtype)[:4]:
        for truncated in (False, True) if fmt is TF32 else (False,):
            for names in _subsets(list(given)):
                yield from _with_rounded(evidence, fmt, truncated, names, given)


def _floating(setting: Setting, gradient: bool) -> dict[str, Tensor]:
    given = {name: t for name, t in setting.check.tensors.items() if t.is_floating_point()}
    if gradient:
        names = (cotangent_name(name) for name in setting.check.cotangents)
        given.update(zip(names, setting.upstream, strict=True))
    return given


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All of them, then each alone, then the pairs."""
    yield from dict.fromkeys([tuple(names), *((n,) for n in names), *itertools.combinations(names, 2)])


def _with_rounded(
    evidence: Evidence, fmt: Format, truncated: bool, names: tuple[str, ...], given: Mapping[str, Tensor]
) -> Iterator[Candidate]:
    setting = evidence.setting
    if setting is None:
        return
    narrow = {name: _narrowed(given[name], fmt, truncated) for name in names}
    if all(equal(narrow[name], given[name]) for name in names):
        return
    arguments = with_tensors(setting.check.arguments, narrow)
    names_of = [cotangent_name(n) for n in setting.check.cotangents]
    upstream = [narrow.get(n, g) for n, g in zip(names_of, setting.upstream, strict=True)]
    admitted = setting.admits((fmt.name, truncated, names), arguments=arguments, upstream=upstream)
    if admitted is not None:
        found = admitted[evidence.result.name]
        how = f"{fmt.name}{' by truncation' if truncated else ''}"
        if fmt is FLOAT16 and all(equal(narrow[n], _narrowed(given[n], TF32, False)) for n in names):
            how += " or tf32, which is the same for these values"
        sentence = f"{PREFIX}: {{count}} those of {' and '.join(names)} rounded to {how}"
        yield Candidate(sentence, found.mid, found.bound_or_zero())


def _narrowed(tensor: Tensor, fmt: Format, truncated: bool) -> Tensor:
    if truncated:  # the hardware drops the last 13 bits of a float32
        return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32) if tensor.dtype is torch.float32 else tensor
    return rounded(tensor.to(torch.float64), fmt).to(tensor.dtype)


ROUNDED = (Hypothesis("result rounded", "every failing value is one of a narrower format", _result_rounded),)
INPUTS = (Hypothesis("inputs rounded", "inputs or upstream gradient rounded to a narrower format", _inputs_rounded),)
