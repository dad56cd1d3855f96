"""One case to be blamed: the kernel's own program, its two replays, and which tensors these make wrong."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping

import torch

from kernels_core.blame.replay import Replacement, Values, changed, leaves, replay
from kernels_core.blame.truth import Truth, truth_of
from kernels_core.diagnosis.evidence import Setting
from kernels_core.program import Program, Ref, Step
from kernels_core.tracing.arguments import cotangent_name

Tensor = torch.Tensor
SECONDS = 8.0  # of CPU time that the search for the lines of one case may take


@dataclasses.dataclass
class Subject:
    """A kernel that is made of PyTorch operations.

    Attributes:
        program: its own forward and backward.
        setting: the case.
        deadline: of the search, in CPU time of this process.
        cut_short: set where time ran out.
    """

    program: Program
    setting: Setting
    deadline: float = dataclasses.field(default_factory=lambda: time.process_time() + SECONDS)
    cut_short: bool = False

    def late(self) -> bool:
        """Return True, from then on, where the time is over."""
        self.cut_short = self.cut_short or time.process_time() > self.deadline
        return self.cut_short

    @functools.cached_property
    def inputs(self) -> dict[str, Tensor]:
        """Inputs and upstream gradients by name."""
        names = (cotangent_name(name) for name in self.setting.check.cotangents)
        upstream = {n: g.detach() for n, g in zip(names, self.setting.upstream, strict=True)}
        return {**{n: t.detach() for n, t in self.setting.check.tensors.items()}, **upstream}

    @functools.cached_property
    def start(self) -> Values:
        """What a replay starts from."""
        return leaves(self.program, self.inputs)

    @functools.cached_property
    def exact(self) -> Values:
        """Every value, computed without rounding."""
        return replay(self.program, self.start, rounded=False)

    @functools.cached_property
    def rounded(self) -> Values:
        """Every value, each step rounded to its format."""
        return replay(self.program, self.start, rounded=True)

    @functools.cached_property
    def truth(self) -> Truth:
        """The values of the true function and derivative; those of the kernel's own forward only if that is right."""
        wrong = any(not name.startswith("grad_") for name in self.wrong_exactly)
        return truth_of(self.setting.check, self.inputs, None if wrong else self.setting.function, self.late)

    @functools.cached_property
    def steps(self) -> dict[int, Step]:
        """Steps by number."""
        return {step.number: step for step in self.program.steps}

    @property
    def rows(self) -> dict[str, Ref]:
        """The results that are compared, by name."""
        known = self.setting.results
        return {n: ref for n, ref in self.program.outputs.items() if ref is not None and n in known}

    def outside(self, name: str, value: Tensor) -> Tensor:
        """Return True where a value lies outside of the admissible interval of a tensor."""
        enclosure = self.setting.results[name].enclosure
        inside = (value - enclosure.mid).abs() <= enclosure.bound_or_zero()
        same = (value == enclosure.mid) | (value.isnan() & enclosure.mid.isnan())
        return ~(inside | same)

    def wrong(self, values: Mapping[Ref, Tensor]) -> set[str]:
        """Return the names of the tensors that have an element outside."""
        return {name for name, ref in self.rows.items() if bool(self.outside(name, values[ref]).any())}

    @functools.cached_property
    def wrong_exactly(self) -> set[str]:
        """The tensors that are wrong without any rounding."""
        return self.wrong(self.exact)

    @functools.cached_property
    def wrong_rounded(self) -> set[str]:
        """The tensors that are wrong with every rounding."""
        return self.wrong(self.rounded)

    def mended(self, name: str, replacement: Mapping[Ref, Replacement], *, rounded: bool) -> bool:
        """Return True where replaced results bring a whole tensor inside, and none of the others out.

        Args:
            name: of the tensor.
            replacement: results by Ref.
            rounded: replay with rounding.
        """
        values = self.rounded if rounded else self.exact
        found = changed(self.program, values, replacement, list(self.rows.values()), rounded=rounded)
        if bool(self.outside(name, found[self.rows[name]]).any()):
            return False
        return self.wrong(found) <= (self.wrong_rounded if rounded else self.wrong_exactly)

    def ancestors(self, ref: Ref) -> list[Step]:
        """Return the steps that a result depends on, itself included, in the order of execution."""
        needed = {ref.step}
        for step in reversed(self.program.steps):
            if step.number in needed:
                needed.update(operand.step for operand in step.operands)
        return [step for step in self.program.steps if step.number in needed and step.op is not None]


def line(step: Step) -> str:
    """Return "file:line" of the innermost user frame of a step, "" where unknown."""
    return step.source.partition("\n")[0]
