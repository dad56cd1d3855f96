"""Small inputs for every entry of the catalogue, and for its settings that take another path.

`EXAMPLES["attention, window"]` makes the arguments of the entry `attention`: the name ends at the comma.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels_core.reference import Reference
from kernels_core.references import catalogue

Tensor = torch.Tensor
Arguments = dict[str, Any]


class Draw:
    """Draws tensors of one dtype, each after the other from one generator."""

    def __init__(self, dtype: torch.dtype, seed: int = 0) -> None:
        """Start the generator at the seed."""
        self.dtype, self.generator = dtype, torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Return normal numbers."""
        return torch.randn(shape, generator=self.generator).to(self.dtype)

    def uniform(self, *shape: int) -> Tensor:
        """Return numbers between 0 and 1."""
        return torch.rand(shape, generator=self.generator).to(self.dtype)

    def whole(self, below: int, *shape: int) -> Tensor:
        """Return whole numbers."""
        return torch.randint(below, shape, generator=self.generator)

    def coins(self, *shape: int) -> Tensor:
        """Return booleans."""
        return torch.rand(shape, generator=self.generator) < 0.5

    def distribution(self, *shape: int) -> Tensor:
        """Return probabilities along the last dimension."""
        return torch.softmax(self.normal(*shape).float(), -1).to(self.dtype)

    def log_distribution(self, *shape: int) -> Tensor:
        """Return logarithms of probabilities along the last dimension."""
        return torch.log_softmax(self.normal(*shape).float(), -1).to(self.dtype)


def _attention(draw: Draw, **settings: Any) -> Arguments:
    found = {"query": draw.normal(1, 4, 5, 8), "key": draw.normal(1, 2, 7, 8), "value": draw.normal(1, 2, 7, 8)}
    return {**found, "mask": None, "causal": True, "scale": None, "alignment": "bottom-right", **settings}


def _varlen(draw: Draw, **settings: Any) -> Arguments:
    found = {"query": draw.normal(8, 4, 8), "key": draw.normal(11, 2, 8), "value": draw.normal(11, 2, 8)}
    offsets = {"query_offsets": torch.tensor([0, 5, 5, 8]), "key_offsets": torch.tensor([0, 6, 7, 11])}
    return {**found, **offsets, "causal": True, "scale": None, **settings}


def _convolution(draw: Draw, dims: int, transposed: bool) -> Arguments:
    weight = draw.normal(4, 3, *[3] * dims) if transposed else draw.normal(6, 2, *[3] * dims)
    sizes = {"input": draw.normal(2, 4, *[6 - dims] * dims), "weight": weight, "bias": draw.normal(6)}
    more = {"output_padding": 1, "groups": 2} if transposed else {"groups": 2}
    return {**sizes, "stride": 2, "padding": 1, **more}


def _selective(draw: Draw, **more: Any) -> Arguments:
    found = {"u": draw.normal(2, 3, 6), "delta": draw.uniform(2, 3, 6), "A": -draw.uniform(3, 4)}
    return {**found, "B": draw.normal(2, 4, 6), "C": draw.normal(2, 4, 6), **more}


def _optimiser(draw: Draw, **more: Any) -> Arguments:
    return {"parameter": draw.normal(20), "grad": draw.normal(20), **more}


EXAMPLES: Mapping[str, Callable[[Draw], Arguments]] = {
    "matmul": lambda d: {"A": d.normal(5, 17), "B": d.normal(17, 3)},
    "linear": lambda d: {"input": d.normal(5, 17), "weight": d.normal(3, 17), "bias": d.normal(3)},
    "conv1d": lambda d: _convolution(d, 1, False),
    "conv2d": lambda d: _convolution(d, 2, False),
    "conv3d": lambda d: _convolution(d, 3, False),
    "conv_transpose1d": lambda d: _convolution(d, 1, True),
    "conv_transpose2d": lambda d: _convolution(d, 2, True),
    "conv_transpose3d": lambda d: _convolution(d, 3, True),
    "causal_conv1d": lambda d: {"input": d.normal(2, 3, 9), "weight": d.normal(3, 4)},
    "causal_conv1d, with a state": lambda d: {
        **{"input": d.normal(2, 3, 9), "weight": d.normal(3, 4), "bias": d.normal(3)},
        **{"initial_state": d.normal(2, 3, 3), "activation": "silu"},
    },
    "moe": lambda d: {
        **{"input": d.normal(5, 7), "weight": d.normal(3, 7, 4)},
        **{"assignment": d.whole(3, 5, 2), "gates": d.distribution(5, 2)},
    },
    "softmax": lambda d: {"input": d.normal(4, 19)},
    "log_softmax": lambda d: {"input": d.normal(4, 19)},
    "sparsemax": lambda d: {"input": d.normal(4, 9)},
    "sparsemax, columns": lambda d: {"input": d.normal(5, 4), "dim": 0},
    "entmax15": lambda d: {"input": 2 * d.normal(4, 9)},
    "cross_entropy": lambda d: {"input": d.normal(6, 9), "target": torch.tensor([0, 8, 3, -100, 3, 1])},
    "cross_entropy, smoothed with z": lambda d: {
        **{"input": d.normal(6, 9), "target": torch.tensor([0, 8, 3, -100, 3, 1])},
        **{"label_smoothing": 0.1, "z_loss": 1e-2},
    },
    "linear_cross_entropy": lambda d: {
        **{"input": d.normal(6, 8), "weight": d.normal(9, 8), "target": torch.tensor([0, 8, 3, -100, 3, 1])},
        **{"bias": d.normal(9)},
    },
    "kl_div": lambda d: {"input": d.log_distribution(4, 9), "target": d.distribution(4, 9), "reduction": "sum"},
    "kl_div, of logarithms": lambda d: {
        **{"input": d.log_distribution(4, 9), "target": d.log_distribution(4, 9)},
        **{"reduction": "batchmean", "log_target": True},
    },
    "jsd": lambda d: {"input": d.log_distribution(4, 9), "target": d.log_distribution(4, 9), "beta": 0.3},
    "focal_loss": lambda d: {"input": 2 * d.normal(4, 9), "target": d.coins(4, 9).to(d.dtype)},
    "layer_norm": lambda d: {"input": d.normal(4, 16), "weight": d.normal(16), "bias": d.normal(16)},
    "rms_norm": lambda d: {"input": d.normal(4, 16), "weight": d.normal(16)},
    "batch_norm": lambda d: {"input": d.normal(6, 3, 5), "weight": d.normal(3), "bias": d.normal(3)},
    "batch_norm, evaluation": lambda d: {
        **{"input": d.normal(6, 3, 5), "weight": d.normal(3), "bias": d.normal(3)},
        **{"running_mean": d.normal(3), "running_var": 0.5 + d.uniform(3), "training": False},
    },
    "group_norm": lambda d: {
        **{"input": d.normal(2, 6, 5), "num_groups": 3, "weight": d.normal(6), "bias": d.normal(6)},
    },
    "instance_norm": lambda d: {"input": d.normal(2, 3, 8), "weight": d.normal(3), "bias": d.normal(3)},
    "attention": lambda d: _attention(d),
    "attention, window": lambda d: _attention(d, causal=False, window=[2, 1]),
    "attention, softcap": lambda d: _attention(d, softcap=2.0),
    "attention, slopes": lambda d: _attention(d, slopes=d.uniform(4)),
    "attention_varlen": lambda d: _varlen(d),
    "attention_varlen, everything": lambda d: _varlen(d, window=[3, 0], softcap=3.0, slopes=d.uniform(4)),
    "gated_scan": lambda d: {"gate": d.uniform(2, 6, 3), "input": d.normal(2, 6, 3), "initial_state": d.normal(2, 3)},
    "linear_attention": lambda d: {
        **{"query": d.normal(2, 6, 4), "key": d.normal(2, 6, 4), "value": d.normal(2, 6, 3)},
        **{"initial_state": d.normal(2, 4, 3)},
    },
    "selective_scan": lambda d: _selective(d),
    "selective_scan, everything": lambda d: _selective(
        d, D=d.normal(3), z=d.normal(2, 3, 6), delta_bias=d.normal(3), delta_softplus=True
    ),
    "embedding": lambda d: {
        "indices": torch.tensor([[1, 4, 1], [0, 2, 1]]),
        "weight": d.normal(5, 4),
        "padding_idx": 2,
    },
    "rotary_embedding": lambda d: {"input": d.normal(2, 5, 8), "cos": d.normal(5, 4), "sin": d.normal(5, 4)},
    "rotary_embedding, interleaved": lambda d: {
        **{"input": d.normal(2, 5, 8), "cos": d.normal(5, 4), "sin": d.normal(5, 4), "interleaved": True},
    },
    **{
        name: lambda d: {"input": d.normal(60)}
        for name in ("gelu", "silu", "relu", "sigmoid", "tanh", "softplus", "square", "cube")
    },
    "swiglu": lambda d: {"gate": d.normal(4, 9), "up": d.normal(4, 9)},
    "geglu": lambda d: {"gate": d.normal(4, 9), "up": d.normal(4, 9)},
    "dropout": lambda d: {"input": d.normal(4, 9), "mask": d.coins(4, 9), "p": 0.3},
    "dequantize": lambda d: {"input": d.whole(255, 4, 9) - 128, "scale": 0.01 + d.uniform(4, 1), "zero_point": 3},
    "fake_quantize": lambda d: {
        **{"input": d.normal(4, 9), "scale": 0.01 + d.uniform(4, 1) / 64, "zero_point": 3, "low": -128, "high": 127},
    },
    "sgd_step": lambda d: _optimiser(d, momentum_buffer=d.normal(20), weight_decay=0.1, nesterov=True),
    "adam_step": lambda d: _optimiser(
        d, exp_avg=d.normal(20), exp_avg_sq=0.1 + d.uniform(20), step=3, weight_decay=0.1
    ),
    "adam_step, coupled": lambda d: _optimiser(
        d, exp_avg=d.normal(20), exp_avg_sq=0.1 + d.uniform(20), weight_decay=0.1, decoupled=False
    ),
}


def cases() -> Iterator[tuple[str, Reference, Callable[[Draw], Arguments]]]:
    """Yield name, reference and maker of arguments: of every example, by every algorithm of its entry."""
    for title, make in EXAMPLES.items():
        name, comma, setting = title.partition(",")
        entry = catalogue()[name]
        yield title, entry, make
        for algorithm, reference in entry.algorithms.items():
            yield f"{name}.{algorithm}{comma}{setting}", reference, make
