"""The filter: one float64 evaluation of a program, with a bound beside every value.

Our own uncertainty. The float64 evaluation of `mid` obeys the same rules as a kernel, with u = 2^-53, so both roundings
are counted: with a kernel's u plus ours at every step the rules bound |legal - mid| =: B (`Arithmetic.around_mid`; each
rule F at mid bounds |f(x) - f(mid)| for every |x - mid| <= B, and its roundings grow at least linearly with u). A bound
evaluated at mid with the kernel's roundings alone holds around mid, not around the exact value: where mid has cancelled
and is as far off as a kernel may be, (a + r)(b + r) moves by up to 3 r^2 where F = |mid| r + |mid'| r + r^2 = r^2.
With |mid - exact| <= rad then

    |legal - exact| <= B + rad,

which is the bound. Where every format of the program is float32 or narrower, each step grants at least 2^26 times the
rounding that our evaluation commits (u ratio 2^29, less a factor 8 for the accuracy of float64 functions), and every
rule's propagation F is star-shaped, F(t b) <= t F(b) for t <= 1. By induction over the steps |mid - exact| <= 2^-26 B.

Otherwise (a float64 step, or a rule that reported a point where F is not star-shaped) two ways are open. A program with
float64 steps is evaluated in double-double beside the rules, step by step (doubles/evaluation.py): that gives mid to
about a hundred bits, and the rules see midpoints that are off by half an ulp. For elements that this loses, and for
other programs, a second run of the same rules with every format float64 bounds |mid - exact| itself: the `rad` run. The
bound is up to three times that of a kernel alone there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import torch

from kernels_core.doubles.evaluation import by_element, evaluates
from kernels_core.enclosure import Enclosure, all_finite, exactly
from kernels_core.errors import InvariantError
from kernels_core.filter.arithmetic import INFLATE, Arithmetic
from kernels_core.filter.closed import closed
from kernels_core.filter.evaluation import Values, evaluate_step
from kernels_core.filter.flushing import flushed
from kernels_core.filter.fusion import fused
from kernels_core.filter.memory import keep_freed_memory
from kernels_core.filter.overflow import smallest_factor
from kernels_core.filter.saturation import limited
from kernels_core.filter.tiled import evaluate_tiled
from kernels_core.filter.tiles import Run, schedule
from kernels_core.profiles import Profile
from kernels_core.program import Program, Ref
from kernels_core.rewrites.free_signs import unknown_rads, without_free_signs

RAD_FRACTION = 2.0**-26


@dataclasses.dataclass(frozen=True)
class Filtered:
    """The outcome of the filter.

    Attributes:
        enclosures: by output name.
        rads: bound on |mid + low - exact| by output name, low being zero but in double-double; a float is that
            fraction of the bound.
        integers: every integer or boolean tensor of the program that an index may need, for the exact tier.
        ties: number of exact ties met in comparisons (0 where the run counted none).
        orders_of_nan: number of comparisons with NaN.
        failure: probability that a bound does not hold (growth.py); 0 for worst-case bounds.
    """

    enclosures: Mapping[str, Enclosure]
    rads: Mapping[str, torch.Tensor | float]
    integers: Values
    ties: int
    orders_of_nan: int
    failure: float = 0.0


def run_filter(
    program: Program,
    inputs: Mapping[str, torch.Tensor | Enclosure],
    profile: Profile,
    *,
    kinks: bool = False,
    at_nan: bool = False,
    rad: bool = True,
) -> Filtered:
    """Evaluate the program and bound every output.

    Args:
        program: traced at the shapes and dtypes of `inputs`.
        inputs: one tensor (exact) or enclosure for each input of the program.
        profile: the arithmetic that kernels may use.
        kinks: let ties in comparisons be unsure, so that gradients take the hull of both sides.
        at_nan: let orders of NaN be unsure, so that gradients take the hull of both sides.
        rad: False to leave |mid - exact| out where every format is float32 or narrower.
    """
    keep_freed_memory()
    wide = _has_float64_step(program)
    if wide and not profile.flush_subnormals and evaluates(program):
        return _run_in_doubles(program, inputs, profile, kinks=kinks, at_nan=at_nan)
    return _run(program, inputs, profile, kinks=kinks, at_nan=at_nan, rad=rad or wide, wide=wide)


def _run_in_doubles(
    program: Program, inputs: Mapping[str, torch.Tensor | Enclosure], profile: Profile, *, kinks: bool, at_nan: bool
) -> Filtered:
    """Evaluate in double-double; elements that this loses are those of the run in float64."""
    arithmetic = Arithmetic(profile, doubles=True, kinks=kinks, at_nan=at_nan)
    values = _evaluate(program, _start(program, inputs), arithmetic)
    found = _outputs(program, values)
    if any(_loses(value) for value in found.values()):
        plain = _run(program, inputs, profile, kinks=kinks, at_nan=at_nan, rad=True, wide=True)
        found = {name: _recovered(v, plain.enclosures[name], plain.rads[name]) for name, v in found.items()}
    rads = {name: value.mid.new_zeros(()) if value.rad is None else value.rad for name, value in found.items()}
    return Filtered(found, rads, _integers(values), arithmetic.ties, arithmetic.orders_of_nan, arithmetic.failure)


def _loses(value: Enclosure) -> bool:
    if not value.floating or value.rad is None or all_finite(value.rad):
        return False
    return not bool((value.rad.isfinite() | value.mid.isnan()).all())


def _recovered(value: Enclosure, plain: Enclosure, rad: torch.Tensor | float) -> Enclosure:
    """Return the enclosure with float64's midpoint, bound and radius where double-double arithmetic knows nothing."""
    if not _loses(value) or not isinstance(rad, torch.Tensor) or value.rad is None:
        return value
    lost = ~value.rad.isfinite()
    low = None if value.low is None else value.low.masked_fill(lost, 0.0)
    bound = torch.where(lost, plain.bound_or_zero(), value.bound_or_zero())
    return dataclasses.replace(value, mid=torch.where(lost, plain.mid, value.mid), bound=bound, low=low,
                               rad=torch.where(lost, rad, value.rad))  # fmt: skip


def _around_exact(value: Enclosure, rad: torch.Tensor | float) -> Enclosure:
    """Return the enclosure whose bound, which holds around mid, holds around the exact value."""
    if value.bound is None:
        return value
    bound = (value.bound + rad) * INFLATE
    return dataclasses.replace(value, bound=torch.where(value.bound == 0, 0.0, bound))


def _integers(values: Values) -> Values:
    return Values({ref: value for ref, value in values.items() if not value.floating})


def _run(
    program: Program,
    inputs: Mapping[str, torch.Tensor | Enclosure],
    profile: Profile,
    *,
    kinks: bool,
    at_nan: bool,
    rad: bool,
    wide: bool,
) -> Filtered:
    program = program if profile.flush_subnormals else fused(program)  # the fused bounds know no flushing
    factor = smallest_factor(program)
    start_over = functools.partial(Arithmetic, profile, kinks=kinks, at_nan=at_nan, smallest_factor=factor)
    arithmetic = start_over(around_mid=True)

    def start() -> Values:
        values = _start(program, inputs)
        return _flushed(values) if profile.flush_subnormals else values

    def turned(bit: int) -> dict[str, Enclosure]:
        other = start_over(around_mid=True, turned=bit)
        return _outputs(program, _evaluate(program, start(), other))

    exact = all(isinstance(value, torch.Tensor) for value in inputs.values())
    exact = exact and not profile.flush_subnormals and profile.order != "sequential"  # which has sharper sums
    values = _evaluate(closed(program) if exact else program, start(), arithmetic)
    if arithmetic.special:
        arithmetic = start_over(around_mid=True)
        values = _evaluate(program, start(), arithmetic)
    found = without_free_signs(_outputs(program, values), arithmetic.vectors, turned)
    rads: dict[str, torch.Tensor | float] = dict.fromkeys(found, RAD_FRACTION)
    if rad and (arithmetic.rad_lost or wide):
        own = start_over(float64=True)
        again = _evaluate(program, _start(program, _mids(inputs)), own)
        rads = {name: value.bound_or_zero() for name, value in _outputs(program, again).items()}
        found = {name: _around_exact(value, rads[name]) for name, value in found.items()}
        rads = unknown_rads(rads, found) if arithmetic.vectors else rads
    return Filtered(found, rads, _integers(values), arithmetic.ties, arithmetic.orders_of_nan, arithmetic.failure)


def _outputs(program: Program, values: Values) -> dict[str, Enclosure]:
    stored = {name: ref for name, ref in program.outputs.items() if ref is not None}
    return {name: limited(values[ref], program.output_metas[name].dtype) for name, ref in stored.items()}


def _mids(inputs: Mapping[str, torch.Tensor | Enclosure]) -> dict[str, torch.Tensor | Enclosure]:
    return {n: Enclosure(v.mid, None, v.unsure) if isinstance(v, Enclosure) else v for n, v in inputs.items()}


def _has_float64_step(program: Program) -> bool:
    return any(m is not None and m.dtype is torch.float64 for s in program.steps if s.op is not None for m in s.metas)


def _start(program: Program, inputs: Mapping[str, torch.Tensor | Enclosure]) -> Values:
    values = Values()
    for name, number in program.inputs.items():
        if name not in inputs:
            raise InvariantError(f"no value for input {name}")
        value = inputs[name]
        values[Ref(number)] = value if isinstance(value, Enclosure) else Enclosure(value)
    for number, tensor in program.constants.items():
        values[Ref(number)] = Enclosure(tensor)
    return values


def _flushed(values: Values) -> Values:
    """Return inputs and constants as a kernel may read them."""
    return Values({ref: flushed(exactly(v.mid), v.mid.dtype) if v.bound is None else v for ref, v in values.items()})


def _evaluate(program: Program, values: Values, arithmetic: Arithmetic) -> Values:
    ordered = arithmetic.doubles or arithmetic.profile.order == "sequential"  # what reads all terms of a sum in order
    runs = schedule(program, closing=not ordered, whole=by_element if arithmetic.doubles else None)
    uses = [run.outputs_used(program) for run in runs]
    last = _last_use(program, runs)
    for number, (run, used) in enumerate(zip(runs, uses, strict=True)):
        if run.lead:
            evaluate_tiled(run, used, values, arithmetic)
        else:
            for output, value in enumerate(evaluate_step(run.steps[0], values, arithmetic)):
                if value is not None:
                    values[Ref(run.steps[0].number, output)] = value
        for ref in last.get(number, ()):
            if dict.__getitem__(values, ref).floating:
                del values[ref]
    return values


def _last_use(program: Program, runs: list[Run]) -> dict[int, list[Ref]]:
    """Return, for each run, the values that nothing reads after it."""
    kept = {ref for ref in program.outputs.values() if ref is not None}
    seen: dict[Ref, int] = {}
    inside = {step.number: number for number, run in enumerate(runs) for step in (*run.steps, *run.closing)}
    for number, run in enumerate(runs):
        for step in (*run.steps, *run.closing):
            for ref in step.operands:
                if inside.get(ref.step) != number or not run.lead:
                    seen[ref] = number
    found: dict[int, list[Ref]] = {}
    for ref, number in seen.items():
        if ref not in kept:
            found.setdefault(number, []).append(ref)
    return found
