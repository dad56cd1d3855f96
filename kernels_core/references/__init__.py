"""The catalogue: references under the names that users and specs call them by.

An algorithm is the same function by another route with other roundings (`layer_norm.one_pass`), or a named form of it
(`gelu.tanh`). To add a reference, write a plain PyTorch function in a file of this folder and give it an entry here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from kernels_core.reference import Reference
from kernels_core.references import activations, attention, matmul, norms, softmax

_ATTENTION = {
    "standard": Reference(attention.attention, "attention.standard"),
    "flash": Reference(
        attention.attention,
        "attention.flash",
        declared=attention.flash_backward,
        keeps=attention.attention_with_logsumexp,
    ),
    "flash_narrow": Reference(
        attention.attention_narrow,
        "attention.flash_narrow",
        declared=attention.flash_backward_narrow,
        keeps=attention.attention_narrow_with_logsumexp,
    ),
    "flash_with_logsumexp": Reference(
        attention.attention_with_logsumexp, "attention.flash_with_logsumexp", declared=attention.flash_backward
    ),
}
_LAYER_NORM = {
    "two_pass": Reference(norms.layer_norm, "layer_norm.two_pass"),
    "one_pass": Reference(norms.layer_norm_one_pass, "layer_norm.one_pass"),
}
_GELU = {
    "erf": Reference(activations.gelu, "gelu.erf"),
    "tanh": Reference(activations.gelu_tanh, "gelu.tanh"),
}
_GEGLU = {
    "erf": Reference(activations.geglu, "geglu.erf"),
    "tanh": Reference(activations.geglu_tanh, "geglu.tanh"),
}


@functools.cache
def catalogue() -> Mapping[str, Reference]:
    """Return the references by name, in the order in which `exactref list` shows them."""
    return MappingProxyType(
        {
            "matmul": Reference(matmul.matmul, "matmul"),
            "linear": Reference(matmul.linear, "linear"),
            "softmax": Reference(softmax.softmax, "softmax"),
            "log_softmax": Reference(softmax.log_softmax, "log_softmax"),
            "cross_entropy": Reference(softmax.cross_entropy, "cross_entropy"),
            "layer_norm": Reference(norms.layer_norm, "layer_norm", algorithms=_LAYER_NORM),
            "rms_norm": Reference(norms.rms_norm, "rms_norm"),
            "attention": Reference(attention.attention, "attention", algorithms=_ATTENTION),
            "gelu": Reference(activations.gelu, "gelu", algorithms=_GELU),
            "silu": Reference(activations.silu, "silu"),
            "swiglu": Reference(activations.swiglu, "swiglu"),
            "geglu": Reference(activations.geglu, "geglu", algorithms=_GEGLU),
            "relu": Reference(activations.relu, "relu"),
            "sigmoid": Reference(activations.sigmoid, "sigmoid"),
            "tanh": Reference(activations.tanh, "tanh"),
            "softplus": Reference(activations.softplus, "softplus"),
            "square": Reference(activations.square, "square"),
            "cube": Reference(activations.cube, "cube"),
        }
    )
