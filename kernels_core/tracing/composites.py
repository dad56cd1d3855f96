"""Composite operations that must be taken apart before differentiation.

PyTorch's CPU kernels for layer, group and batch norm save mean and 1/std for the backward; in 16 bit these are rounded
to 16 bit, and a gradient traced through them would grant that rounding to every kernel. Fused attention saves a
logsumexp. Here such calls are replaced, while the reference is traced, by plain float32 arithmetic with one rounding
at the end. The real-number meaning is the same.
"""

from __future__ import annotations

import math
import pathlib
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernels_core.decompositions.sampling import SAMPLERS
from kernels_core.decompositions.segments import SEGMENTS
from kernels_core.errors import TraceError
from kernels_core.rewrites.determinant import DETERMINANTS
from kernels_core.tracing.standin import python_of_operator


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in its compute format: float32 for 16 bit and narrower, else unchanged."""
    return tensor.float() if tensor.is_floating_point() and tensor.dtype.itemsize < 4 else tensor


def _normalize(x: torch.Tensor, dims: tuple[int, ...], eps: float) -> torch.Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)


def _affine(y: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    if weight is not None:
        y = y * wide(weight)
    return y if bias is None else y + wide(bias)


def _channels(parameter: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    return None if parameter is None else parameter.reshape(1, -1, *[1] * (x.dim() - 2))


def layer_norm(
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> torch.Tensor:
    """Layer norm over the trailing dimensions, two passes, in the compute format."""
    dims = tuple(range(-len(tuple(normalized_shape)), 0))
    return _affine(_normalize(wide(input), dims, eps), weight, bias).to(input.dtype)


def rms_norm(
    input: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """RMS norm over the trailing dimensions; eps defaults to that of the input's dtype, as in PyTorch."""
    x, dims = wide(input), tuple(range(-len(tuple(normalized_shape)), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return _affine(x * torch.rsqrt(x.square().mean(dims, keepdim=True) + eps), weight, None).to(input.dtype)


def group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """Group norm: each of `num_groups` groups of channels with all positions."""
    x = wide(input)
    grouped = x.reshape(x.shape[0], num_groups, -1)
    y = _normalize(grouped, (-1,), eps).reshape(x.shape)
    return _affine(y, _channels(weight, x), _channels(bias, x)).to(input.dtype)


def batch_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """Batch norm with the batch's statistics in training mode, the running ones otherwise.

    The running statistics are buffers: their update is not part of the result here.
    """
    x = wide(input)
    if training or running_mean is None or running_var is None:
        y = _normalize(x, (0, *range(2, x.dim())), eps)
    else:
        mean, var = (t.reshape(1, -1, *[1] * (x.dim() - 2)) for t in (wide(running_mean), wide(running_var)))
        y = (x - mean) * torch.rsqrt(var + eps)
    return _affine(y, _channels(weight, x), _channels(bias, x)).to(input.dtype)


def instance_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """Instance norm: every sample and channel over its positions."""
    x = wide(input)
    if use_input_stats:
        y = _normalize(x, tuple(range(2, x.dim())), eps)
        return _affine(y, _channels(weight, x), _channels(bias, x)).to(input.dtype)
    return batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


def binary_cross_entropy_with_logits(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """(p t + 1 - t) log(1 + e^x) - p t x, whose derivative (p t + 1 - t) sigmoid(x) - p t is the form that kernels use.

    The form that PyTorch's decomposition differentiates has another, more accurate cancellation near sigmoid(x) = t.
    """
    x, t = wide(input), wide(target)
    positive = t if pos_weight is None else wide(pos_weight) * t
    loss = torch.logaddexp(x, torch.zeros_like(x))
    loss = (loss if pos_weight is None else (positive + 1 - t) * loss) - positive * x
    loss = loss if weight is None else loss * wide(weight)
    if size_average is not None or reduce is not None:
        reduction = F._Reduction.legacy_get_string(size_average, reduce, emit_warning=False)  # type: ignore[attr-defined]
    loss = loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
    return loss.to(input.dtype)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention as PyTorch's math backend defines it, in the compute format (a fully masked row is NaN)."""
    if dropout_p:
        raise ValueError("attention with dropout is random: give the mask and multiply by it")
    q, k, v = wide(query), wide(key), wide(value)
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~visible, -math.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + wide(attn_mask)
    return (torch.softmax(scores, -1) @ v).to(query.dtype)


def _functional_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


def _functional_instance_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    return instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


def _linear_cross_entropy(*args: Any, options: Any = None, **kwargs: Any) -> torch.Tensor:
    """The loss without chunks: `options` say how a kernel goes about it, not what it computes."""
    return F.linear_cross_entropy(*args, **kwargs)


# A function of torch.nn.functional is intercepted as a whole: what it calls inside is not.
COMPOSITES: Mapping[Any, Callable[..., Any]] = {
    F.binary_cross_entropy_with_logits: binary_cross_entropy_with_logits,
    F.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    F.group_norm: group_norm,
    F.batch_norm: _functional_batch_norm,
    F.instance_norm: _functional_instance_norm,
    torch.layer_norm: layer_norm,
    torch.rms_norm: rms_norm,
    torch.group_norm: group_norm,
    torch.batch_norm: batch_norm,
    torch.instance_norm: instance_norm,
    F.scaled_dot_product_attention: scaled_dot_product_attention,
    F.linear_cross_entropy: _linear_cross_entropy,
    **DETERMINANTS,
    **SAMPLERS,
    **SEGMENTS,
}


# What takes a floating value out of the program. Its rounded value would become an exact constant of the reference.
_LEAVES_PYTORCH = frozenset({
    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__float__, torch.Tensor.__array__,
    torch.Tensor.__int__,
})  # fmt: skip


def _refuse_leaving(func: Any, args: Any) -> None:
    if func in _LEAVES_PYTORCH and args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
        raise TraceError(
            f"the reference takes a floating value out of PyTorch (.{func.__name__}{_at(next(user_lines(), ''))})\n"
            "keep it a tensor; for a Triton, C++ or numpy kernel name a reference"
        )


def _at(line: str) -> str:
    return f" at {line}" if line else ""


class composites_first(TorchFunctionMode):  # noqa: N801  (used like a function: with composites_first(): ...)
    """Within this, the calls listed above run as plain arithmetic; `sources` gets the line behind each graph node."""

    def __init__(self, sources: dict[str, str] | None = None, *, callers: bool = False) -> None:
        """Record "file:line" by node name into `sources`; with `callers` of each user frame, innermost first."""
        super().__init__()
        self.sources, self.callers = sources if sources is not None else {}, callers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the call where it is one of ours; refuse one that leaves PyTorch with a floating value."""
        _refuse_leaving(func, args)
        before = _last_node()
        try:
            return _replacement(func)(*args, **(kwargs or {}))
        finally:
            self._record(before)

    def _record(self, before: Any) -> None:
        node, source = _last_node(), ""
        while node is not None and node is not before and node.op != "root":
            source = source or ("\n".join(user_lines()) if self.callers else next(user_lines(), ""))
            self.sources.setdefault(node.name, source)
            node = node.prev


class lines_of_operations(TorchDispatchMode):  # noqa: N801  (used like a function)
    """Within this, `sources` gets the user's lines behind each graph node, those of a Function's backward too."""

    def __init__(self, sources: dict[str, str]) -> None:
        """Record the lines, innermost first, by node name into `sources`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.sources = sources

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and record where it was asked for."""
        before = _last_node()
        result = func(*args, **(kwargs or {}))
        node = _last_node()
        lines = "\n".join(user_lines()) if node is not before else ""
        while node is not None and node is not before and node.op != "root":
            self.sources.setdefault(node.name, lines)
            node = node.prev
        return result


def _replacement(func: Any) -> Callable[..., Any]:
    if isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return python_of_operator(func) or func
    return COMPOSITES.get(func, func)


def _last_node() -> Any:
    mode = get_proxy_mode()
    return None if mode is None else next(iter(reversed(mode.tracer.graph.nodes)), None)


def user_lines() -> Iterator[str]:
    """Yield "file:line" of the frames that are not PyTorch's, ours or the standard library's, innermost first.

    Only of those that the search for a line to blame has called, where it runs: PyTorch's own derivative has none.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_BLAME):
            return
        standard = name.startswith(_STANDARD) and "site-packages" not in name
        if not standard and not name.startswith((_TORCH, *_OURS, "<")):
            yield f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]


_TORCH = str(pathlib.Path(torch.__file__).parent)
_OURS = tuple(str(pathlib.Path(__file__).parents[2] / part) for part in ("kernels_core", "exactref", "exactref_cli"))
_BLAME = str(pathlib.Path(__file__).parents[1] / "blame")
_STANDARD = sysconfig.get_paths()["stdlib"]
