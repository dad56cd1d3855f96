"""A profile: what a kernel may do beyond the dtypes of its reference, by name, and knobs that change it.

Knobs widen or narrow any profile. A spec or call that sets one says so in every report (`Profile.title`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kernels_core.profiles.blocks import BlockAccumulator

KNOBS = ("accumulate", "split_k", "flush_subnormals", "function_ulp", "matmul_input", "order")


@dataclasses.dataclass(frozen=True)
class Profile:
    """A named arithmetic with its knobs.

    Attributes:
        name: as written in specs and reports.
        grants: one line for the user: what it allows.
        source: where its figures come from.
        ulp_table: accuracy of elementary functions in ulp of the compute format.
        exp_argument: e such that exp(x) may be computed as exp(x (1 + d)), |d| <= e u; 0 for a library's exponential.
        blocks: accumulators of matrix products by kind of operand, "half", "single" or "float8"; empty where products
            accumulate in round-to-nearest alone.
        accumulate: format in which sums and matrix products may accumulate, "" for the compute format.
        split_k: number of parts of a matrix product's inner dimension whose results may be rounded to the result's
            format before they are added; 1 for none.
        flush_subnormals: subnormal operands and results may be taken for zero.
        function_ulp: accuracies that replace those of `ulp_table`, by function; "all" for every function but division.
        matmul_input: format to which operands of matrix products may be rounded or truncated, "" for none.
        order: of the additions in sums and products: "any", "sequential", "pairwise" or "blocked:n".
        bound: "worst-case" or "probabilistic".
        convolution_input: as matmul_input, of convolutions alone; only `auto` sets it, from PyTorch's flags.
        own: knobs that belong to the named profile, which its name says already.
        reason: why it was picked, where nobody named it.
    """

    name: str
    grants: str
    ulp_table: Mapping[str, float]
    source: str = ""
    exp_argument: float = 0.0
    blocks: Mapping[str, BlockAccumulator] = dataclasses.field(default_factory=dict)
    accumulate: str = ""
    split_k: int = 1
    flush_subnormals: bool = False
    function_ulp: Mapping[str, float] = dataclasses.field(default_factory=dict)
    matmul_input: str = ""
    order: str = "any"
    bound: str = "worst-case"
    convolution_input: str = ""
    own: tuple[str, ...] = ()
    reason: str = ""

    def ulp(self, function: str) -> float:
        """Return the granted error of an elementary function, in ulp."""
        if function in self.function_ulp:
            return self.function_ulp[function]
        if "all" in self.function_ulp and function != "division":
            return self.function_ulp["all"]
        return self.ulp_table.get(function, self.ulp_table["default"])

    @property
    def knobs(self) -> Mapping[str, Any]:
        """The knobs that are set beside those of the named profile, by name."""
        return {
            name: value for name in _SHOWN if name not in self.own and (value := getattr(self, name)) != _DEFAULTS[name]
        }

    @property
    def title(self) -> str:
        """The profile as specs, commands and reports write it: "tf32,split_k=4"."""
        return ",".join([self.name, *(f"{name}={_text(value)}" for name, value in self.knobs.items())])

    @property
    def height_block(self) -> int:
        """The n of `order: blocked:n`, 0 for another order."""
        return int(self.order.partition(":")[2]) if self.order.startswith("blocked:") else 0

    @property
    def probabilistic(self) -> bool:
        """True where sums are bounded with a stated probability only."""
        return self.bound == "probabilistic"


_SHOWN = (*KNOBS, "convolution_input")
_DEFAULTS: Mapping[str, Any] = {
    field.name: {} if field.name == "function_ulp" else field.default
    for field in dataclasses.fields(Profile)
    if field.name in _SHOWN
}


def _text(value: Any) -> str:
    """Return a value of a knob as it is written in "name,knob=value"."""
    if isinstance(value, Mapping):
        return ";".join(f"{function}:{ulp:g}" for function, ulp in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
