"""exactref: certify the outputs and gradients of custom kernels, element by element.

    import exactref as er
    er.matmul(A, B).covers(C)                            # which elements of C a correct kernel may return
    er.matmul.backward(A, B, grad)["grad_A"].covers(dA)  # the same for a gradient
    er.assert_covered(MyMatmul, (A, B), reference=er.matmul)

This module only re-exports; kernels_core is the engine.
"""

from kernels_core.errors import (
    ExactRefError,
    InvariantError,
    NotCovered,
    SpecError,
    TargetError,
    TraceError,
    UnsupportedOperation,
    UsageError,
)
from kernels_core.float8 import float8_cast
from kernels_core.reference import ComplexResult, Reference, Result, reference
from kernels_core.references import catalogue
from kernels_core.report import Report, Verdict
from kernels_core.verify import assert_covered, check

matmul = catalogue()["matmul"]
linear = catalogue()["linear"]
conv1d = catalogue()["conv1d"]
conv2d = catalogue()["conv2d"]
conv3d = catalogue()["conv3d"]
conv_transpose1d = catalogue()["conv_transpose1d"]
conv_transpose2d = catalogue()["conv_transpose2d"]
conv_transpose3d = catalogue()["conv_transpose3d"]
causal_conv1d = catalogue()["causal_conv1d"]
moe = catalogue()["moe"]
softmax = catalogue()["softmax"]
log_softmax = catalogue()["log_softmax"]
sparsemax = catalogue()["sparsemax"]
entmax15 = catalogue()["entmax15"]
cross_entropy = catalogue()["cross_entropy"]
linear_cross_entropy = catalogue()["linear_cross_entropy"]
kl_div = catalogue()["kl_div"]
jsd = catalogue()["jsd"]
focal_loss = catalogue()["focal_loss"]
layer_norm = catalogue()["layer_norm"]
rms_norm = catalogue()["rms_norm"]
batch_norm = catalogue()["batch_norm"]
group_norm = catalogue()["group_norm"]
instance_norm = catalogue()["instance_norm"]
attention = catalogue()["attention"]
attention_varlen = catalogue()["attention_varlen"]
gated_scan = catalogue()["gated_scan"]
linear_attention = catalogue()["linear_attention"]
selective_scan = catalogue()["selective_scan"]
embedding = catalogue()["embedding"]
rotary_embedding = catalogue()["rotary_embedding"]
gelu = catalogue()["gelu"]
silu = catalogue()["silu"]
swiglu = catalogue()["swiglu"]
geglu = catalogue()["geglu"]
relu = catalogue()["relu"]
sigmoid = catalogue()["sigmoid"]
tanh = catalogue()["tanh"]
softplus = catalogue()["softplus"]
square = catalogue()["square"]
cube = catalogue()["cube"]
dropout = catalogue()["dropout"]
dequantize = catalogue()["dequantize"]
fake_quantize = catalogue()["fake_quantize"]
sgd_step = catalogue()["sgd_step"]
adam_step = catalogue()["adam_step"]

__all__ = [
    "ComplexResult",
    "ExactRefError",
    "InvariantError",
    "NotCovered",
    "Reference",
    "Report",
    "Result",
    "SpecError",
    "TargetError",
    "TraceError",
    "UnsupportedOperation",
    "UsageError",
    "Verdict",
    "adam_step",
    "assert_covered",
    "attention",
    "attention_varlen",
    "batch_norm",
    "catalogue",
    "causal_conv1d",
    "check",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cross_entropy",
    "cube",
    "dequantize",
    "dropout",
    "embedding",
    "entmax15",
    "fake_quantize",
    "float8_cast",
    "focal_loss",
    "gated_scan",
    "geglu",
    "gelu",
    "group_norm",
    "instance_norm",
    "jsd",
    "kl_div",
    "layer_norm",
    "linear",
    "linear_attention",
    "linear_cross_entropy",
    "log_softmax",
    "matmul",
    "moe",
    "reference",
    "relu",
    "rms_norm",
    "rotary_embedding",
    "selective_scan",
    "sgd_step",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "sparsemax",
    "square",
    "swiglu",
    "tanh",
]
