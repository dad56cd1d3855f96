"""What a verification found, as plain data: every renderer (table, JSON, failure screen) reads only this."""

from kernels_core.report.case import Arithmetic, BatteryRow, Consistency, InputReport, Raised, Report
from kernels_core.report.tensors import (
    SUSPECT_BITS,
    Blame,
    Element,
    Failure,
    Precision,
    Sensitivity,
    TensorReport,
)
from kernels_core.report.text import summary
from kernels_core.report.verdicts import Outcome, Verdict

__all__ = [
    "SUSPECT_BITS",
    "Arithmetic",
    "BatteryRow",
    "Blame",
    "Consistency",
    "Element",
    "Failure",
    "InputReport",
    "Outcome",
    "Precision",
    "Raised",
    "Report",
    "Sensitivity",
    "TensorReport",
    "Verdict",
    "summary",
]
