"""Random legal evaluations: what an honest kernel may show where PyTorch's own run shows less.

Every step is evaluated in float64 by its rule on exact operands, whose bound is then what this one step grants, and its
result is moved by a random part of that (Monte Carlo arithmetic with the granted errors as the noise). For a sum the
grant is a worst case, so the noise is that of a strictly sequential sum instead (accumulation.py). Nothing depends on
whether the actual operands happen to round: a constant, an integer or a single element is as noisy as any other.

    independent    each element moves by U(-1, 1) of its grant
    coherent       all elements of a step move by one and the same part in [1/2, 1], of either sign: a formula that is
                   always a little high, or equal inputs that all round alike; a sum by a rounding of its accumulator's
                   format, as a factor 1 / n or alpha makes it, or by the factor that the profile's arithmetic shows

Inputs move too where the profile lets subnormal ones be read as zero.

Source: Parker, Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic, 1997.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernels_core.audit.accumulation import Noise, noise_of
from kernels_core.audit.native import by_output, walk
from kernels_core.enclosure import Enclosure, exactly
from kernels_core.filter.arithmetic import Arithmetic, Local
from kernels_core.filter.evaluation import evaluate_step
from kernels_core.filter.flushing import flushed
from kernels_core.filter.tiles import Run
from kernels_core.profiles import Profile
from kernels_core.program import Program, Ref, Step

ENOUGH = 1024  # draws of one element's error that make its rms reliable


def replicates(count: int) -> int:
    """Return how many evaluations a sample of `count` elements needs."""
    return max(2, min(32, -(-ENOUGH // max(1, count))))


class Noises:
    """The noise of steps, which is made once where the operands of a later evaluation are the same."""

    def __init__(self) -> None:
        """Start with none."""
        self._known: dict[tuple[Step, int], tuple[list[torch.Tensor], Noise]] = {}

    def of(
        self, step: Step, value: Enclosure, operands: Sequence[torch.Tensor], arithmetic: Arithmetic, output: int
    ) -> Noise:
        """Return `noise_of` these."""
        before = self._known.get((step, output))
        if before is not None and all(map(torch.equal, before[0], operands)):
            return before[1]
        noise = noise_of(step, value, operands, arithmetic, output)
        if noise.accumulated:
            self._known[step, output] = [*operands], noise
        return noise


class Evaluation:
    """One random legal evaluation."""

    def __init__(self, profile: Profile, seed: int, coherent: bool, noises: Noises | None = None) -> None:
        """Draw from `seed`; evaluations of one program may share `noises`."""
        self.arithmetic, self.coherent, self.noises = Arithmetic(profile), coherent, noises or Noises()
        self.generator = torch.Generator().manual_seed(0xA0D17 + seed)

    def evaluate(self, program: Program, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the outputs by name, in float64."""
        given = {name: self._as_read(value) for name, value in inputs.items()}
        constants = {Ref(number): exactly(tensor) for number, tensor in program.constants.items()}

        def apply(run: Run, values: Mapping[Ref, Any], wanted: set[Ref]) -> dict[Ref, Any]:
            (step,) = run.steps
            operands = {ref: constants.get(ref, values[ref]) for ref in step.operands}
            found = evaluate_step(step, operands, self.arithmetic)
            return by_output(step, (self._moved(step, v, operands, output) for output, v in enumerate(found)))

        with torch.no_grad():
            found = walk(program, given, apply)
        return {name: value.mid for name, value in found.items()}

    def _as_read(self, tensor: torch.Tensor) -> Enclosure:
        """Return an input, subnormal values moved by a part of themselves where they may be flushed."""
        value = exactly(tensor)
        if not value.floating or not self.arithmetic.profile.flush_subnormals:
            return value
        lost = flushed(value, tensor.dtype).bound_or_zero()
        return Enclosure(value.mid + self._part(value.mid, self.coherent) * lost)

    def _moved(
        self, step: Step, value: Enclosure | None, operands: Mapping[Ref, Enclosure], output: int
    ) -> Enclosure | None:
        if value is None:
            return None
        if not value.floating or value.bound is None:
            return Enclosure(value.mid)
        noise = self.noises.of(step, value, [operands[ref].mid for ref in step.operands], self.arithmetic, output)
        mid = value.mid
        part = self._part(mid, noise.coherent or (self.coherent and not noise.accumulated))
        moved = mid + part * noise.amplitude
        if self.coherent and noise.accumulated:
            factor = max(Local(self.arithmetic, step).u_acc, noise.factor)
            moved = moved + self._part(mid, True) * (factor * mid)
        return Enclosure(torch.where(moved.isfinite(), moved, mid))

    def _part(self, like: torch.Tensor, coherent: bool) -> torch.Tensor:
        if coherent:
            part = 1 - torch.rand((), generator=self.generator, dtype=torch.float64) / 2
            return (part if bool(torch.rand((), generator=self.generator) < 0.5) else -part).to(like.device)
        drawn = torch.rand(like.shape, generator=self.generator, dtype=torch.float64)
        return drawn.mul_(2).sub_(1).to(like.device)
