"""Liger's Triton kernels, run on the CPU by Triton's interpreter."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.jsd import LigerJSDFunction
from liger_kernel.ops.rope import LigerRopeFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.sparsemax import LigerSparsemaxFunction


def softmax(input):
    """Return the softmax of each row."""
    return LigerSoftmaxFunction.apply(input)


def sparsemax(input):
    """Return the sparsemax of each row."""
    return LigerSparsemaxFunction.apply(input, -1)


def jsd(input, target, beta):
    """Return the generalised Jensen-Shannon divergence; the target is a constant to Liger."""
    return LigerJSDFunction.apply(input, target, None, beta, -100)


def log_probabilities(generator):
    """Return log-probabilities of a student, that is trained, and of a teacher."""
    student, teacher = torch.log_softmax(torch.randn(2, 6, 33, generator=generator), -1)
    return {"input": student.requires_grad_(), "target": teacher, "beta": 0.3}


def distant_probabilities(generator):
    """Return log-probabilities from 0 down to -200, as confident models have them."""
    student, teacher = torch.log_softmax(40 * torch.randn(2, 6, 33, generator=generator), -1)
    return {"input": student.requires_grad_(), "target": teacher, "beta": 0.3}


def cross_entropy(input, target, reduction, ignore_index, label_smoothing, z_loss):
    """Return the cross entropy; the gradient is written over the logits, so they are copied first."""
    settings = (None, ignore_index, z_loss, label_smoothing, reduction, None, False)
    return LigerCrossEntropyFunction.apply(input.clone(), target, *settings)[0]


def rope(query, key, cos, sin):
    """Return queries and keys turned; they are written over, so they are copied first."""
    return LigerRopeFunction.apply(query.clone(), key.clone(), cos, sin)


def plain_rope(query, key, cos, sin):
    """Return queries and keys turned by the reference of the catalogue; cos and sin come twice side by side."""
    from exactref import rotary_embedding

    half = cos.shape[-1] // 2
    return tuple(rotary_embedding.function(t, cos[..., :half], sin[..., :half]) for t in (query, key))
