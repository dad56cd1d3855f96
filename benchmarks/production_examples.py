"""Inputs of every entry of the catalogue at sizes as in production, which one processor still damages a hundred times.

Rows of 1024 to 4096 elements, sums of 1024 to 4096 terms (products, gradients of weights), heads of 64 channels,
convolutions with 3 taps per dimension; tensors of about 2^16 elements. A recurrence is a program as long as its
sequence: these have 32 steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.catalogue_examples import Arguments, Draw


def _heads(draw: Draw, rows: int = 128) -> Arguments:
    return {"query": draw.normal(1, 4, rows, 64), "key": draw.normal(1, 2, rows, 64),
            "value": draw.normal(1, 2, rows, 64)}  # fmt: skip


def _packed(draw: Draw) -> Arguments:
    offsets = torch.tensor([0, 50, 51, 128])
    packed = {name: value[0].transpose(0, 1).contiguous() for name, value in _heads(draw).items()}
    return {**packed, "query_offsets": offsets, "key_offsets": offsets, "causal": True, "scale": None}


def _convolution(draw: Draw, *sizes: int) -> Arguments:
    taps = [3] * len(sizes)
    return {"input": draw.normal(2, 16, *sizes), "weight": draw.normal(16, 16, *taps), "bias": draw.normal(16),
            "stride": 1, "padding": 1}  # fmt: skip


def _optimiser(draw: Draw, **more: Any) -> Arguments:
    return {"parameter": draw.normal(1 << 16), "grad": draw.normal(1 << 16), **more}


PRODUCTION: Mapping[str, Callable[[Draw], Arguments]] = {
    "matmul": lambda d: {"A": d.normal(32, 4096), "B": d.normal(4096, 32)},
    "linear": lambda d: {"input": d.normal(64, 1024), "weight": d.normal(64, 1024), "bias": d.normal(64)},
    "conv1d": lambda d: _convolution(d, 1024),
    "conv2d": lambda d: _convolution(d, 32, 32),
    "conv3d": lambda d: _convolution(d, 10, 10, 10),
    "conv_transpose1d": lambda d: _convolution(d, 1024),
    "conv_transpose2d": lambda d: _convolution(d, 32, 32),
    "conv_transpose3d": lambda d: _convolution(d, 10, 10, 10),
    "causal_conv1d": lambda d: {"input": d.normal(2, 32, 1024), "weight": d.normal(32, 4), "bias": d.normal(32),
                                "activation": "silu"},
    "moe": lambda d: {"input": d.normal(128, 512), "weight": d.normal(4, 512, 32),
                      "assignment": d.whole(4, 128, 2), "gates": d.distribution(128, 2)},
    "softmax": lambda d: {"input": d.normal(16, 4096)},
    "log_softmax": lambda d: {"input": d.normal(16, 4096)},
    "sparsemax": lambda d: {"input": d.normal(64, 1024)},
    "entmax15": lambda d: {"input": 2 * d.normal(64, 1024)},
    "cross_entropy": lambda d: {"input": d.normal(16, 4096), "target": d.whole(4096, 16)},
    "linear_cross_entropy": lambda d: {"input": d.normal(64, 256), "weight": d.normal(1024, 256),
                                       "target": d.whole(1024, 64), "bias": d.normal(1024)},
    "kl_div": lambda d: {"input": d.log_distribution(16, 4096), "target": d.distribution(16, 4096),
                         "reduction": "batchmean"},
    "jsd": lambda d: {"input": d.log_distribution(16, 4096), "target": d.log_distribution(16, 4096), "beta": 0.3},
    "focal_loss": lambda d: {"input": 2 * d.normal(64, 1024), "target": d.coins(64, 1024).to(d.dtype)},
    "layer_norm": lambda d: {"input": d.normal(64, 1024), "weight": d.normal(1024), "bias": d.normal(1024)},
    "rms_norm": lambda d: {"input": d.normal(16, 4096), "weight": d.normal(4096)},
    "batch_norm": lambda d: {"input": d.normal(16, 16, 16, 16), "weight": d.normal(16), "bias": d.normal(16)},
    "group_norm": lambda d: {"input": d.normal(2, 32, 32, 32), "num_groups": 8, "weight": d.normal(32),
                             "bias": d.normal(32)},
    "instance_norm": lambda d: {"input": d.normal(2, 32, 32, 32), "weight": d.normal(32), "bias": d.normal(32)},
    "attention": lambda d: {**_heads(d), "mask": None, "causal": True, "scale": None, "alignment": "bottom-right"},
    "attention_varlen": _packed,
    "gated_scan": lambda d: {"gate": d.uniform(4, 32, 256), "input": d.normal(4, 32, 256),
                             "initial_state": d.normal(4, 256)},
    "linear_attention": lambda d: {"query": d.normal(2, 32, 64), "key": d.normal(2, 32, 64),
                                   "value": d.normal(2, 32, 64), "initial_state": d.normal(2, 64, 64)},
    "selective_scan": lambda d: {"u": d.normal(2, 64, 32), "delta": d.uniform(2, 64, 32), "A": -d.uniform(64, 16),
                                 "B": d.normal(2, 16, 32), "C": d.normal(2, 16, 32)},
    "embedding": lambda d: {"indices": d.whole(1000, 64, 64), "weight": d.normal(1000, 64), "padding_idx": 2},
    "rotary_embedding": lambda d: {"input": d.normal(2, 512, 64), "cos": d.normal(512, 32), "sin": d.normal(512, 32)},
    **{
        name: lambda d: {"input": d.normal(64, 1024)}
        for name in ("gelu", "silu", "relu", "sigmoid", "tanh", "softplus", "square", "cube")
    },
    "swiglu": lambda d: {"gate": d.normal(32, 2048), "up": d.normal(32, 2048)},
    "geglu": lambda d: {"gate": d.normal(32, 2048), "up": d.normal(32, 2048)},
    "dropout": lambda d: {"input": d.normal(64, 1024), "mask": d.coins(64, 1024), "p": 0.3},
    "dequantize": lambda d: {"input": d.whole(255, 64, 1024) - 128, "scale": 0.01 + d.uniform(64, 1),
                             "zero_point": 3},
    "fake_quantize": lambda d: {"input": d.normal(64, 1024), "scale": 0.01 + d.uniform(64, 1) / 64,
                                "zero_point": 3, "low": -128, "high": 127},
    "sgd_step": lambda d: _optimiser(d, momentum_buffer=d.normal(1 << 16), weight_decay=0.1, nesterov=True),
    "adam_step": lambda d: _optimiser(d, exp_avg=d.normal(1 << 16), exp_avg_sq=0.1 + d.uniform(1 << 16), step=3,
                                      weight_decay=0.1),
}  # fmt: skip
