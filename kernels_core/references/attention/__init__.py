"""Attention and its fused kernels: the forward, what it keeps, and the backward by that route."""

from __future__ import annotations

from kernels_core.reference import Reference
from kernels_core.references.attention import flash, forward, varlen

_ATTENTION = {
    "standard": Reference(forward.attention, "attention.standard"),
    "flash": Reference(
        forward.attention,
        "attention.flash",
        declared=flash.flash_backward,
        keeps=forward.attention_with_logsumexp,
    ),
    "flash_narrow": Reference(
        forward.attention_narrow,
        "attention.flash_narrow",
        declared=flash.flash_backward_narrow,
        keeps=forward.attention_narrow_with_logsumexp,
    ),
    "flash_with_logsumexp": Reference(
        forward.attention_with_logsumexp, "attention.flash_with_logsumexp", declared=flash.flash_backward
    ),
}
_VARLEN = {
    "flash": Reference(
        varlen.attention_varlen,
        "attention_varlen.flash",
        declared=varlen.flash_backward_varlen,
        keeps=varlen.attention_varlen_with_logsumexp,
    ),
}
ENTRIES = {
    "attention": Reference(forward.attention, "attention", algorithms=_ATTENTION),
    "attention_varlen": Reference(varlen.attention_varlen, "attention_varlen", algorithms=_VARLEN),
}
