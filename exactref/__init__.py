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
from kernels_core.reference import Reference, Result, reference
from kernels_core.references import catalogue
from kernels_core.report import Report, Verdict
from kernels_core.verify import assert_covered, check

matmul = catalogue()["matmul"]
linear = catalogue()["linear"]
softmax = catalogue()["softmax"]
log_softmax = catalogue()["log_softmax"]
cross_entropy = catalogue()["cross_entropy"]
layer_norm = catalogue()["layer_norm"]
rms_norm = catalogue()["rms_norm"]
attention = catalogue()["attention"]
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

__all__ = [
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
    "assert_covered",
    "attention",
    "catalogue",
    "check",
    "cross_entropy",
    "cube",
    "geglu",
    "gelu",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "reference",
    "relu",
    "rms_norm",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "square",
    "swiglu",
    "tanh",
]
