"""Attacks on profiles: legal kernels with adversarial data must be covered, illegal ones should be violated.

python -m benchmarks.profile_attacks [--rows 16] [--long 8191]

Every kernel is simulated apart from the bounds (tests/core/profiles/simulated.py), on products of K = 1, 2, 3, 33, 127
and 8191 terms: nearly equal, cancelling, huge beside tiny, subnormal. For each accumulator of blocks: the instruction
as it is, and instructions that a generation does not have: one fraction bit less when aligning, one less in the result,
half and a quarter of the block. What of these is *not* violated lies within the worst case of the legal instruction.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

import numpy as np
import torch

from kernels_core.check import Check
from kernels_core.coverage import Element
from kernels_core.reference import reference
from kernels_core.result import Result
from tests.core.profiles import simulated

Array = np.ndarray
Kernel = Callable[[Array, Array], Array]

BLOCKS = {
    "tensorcore-volta": (4, 23, 23),
    "tensorcore-ampere": (8, 24, 23),
    "tensorcore-hopper": (16, 25, 23),
    "fp8-fast": (32, 13, 13),
}
SHORT = (1, 2, 3, 33, 127)
PRODUCT = reference(lambda a, b: torch.bmm(a, b), name="product")
SUBNORMAL = 2.0**-126


def data(kind: str, rows: int, inner: int) -> tuple[Array, Array]:
    """Operands that float16 holds, in float64."""
    generator = np.random.default_rng(inner)
    a, b = generator.standard_normal((2, rows, inner))
    if kind == "equal":
        a, b = np.full((2, rows, inner), 1.0) * generator.uniform(1, 2, (2, rows, 1))
    elif kind == "cancelling":
        half = inner // 2
        a[:, half : 2 * half], b[:, half : 2 * half] = -a[:, :half], b[:, :half]
    elif kind == "huge beside tiny":
        a = a * 2.0 ** generator.integers(-9, 8, a.shape)
        a[:, 0] = 2.0**14
    elif kind == "one above many":
        a, b = np.full_like(a, 2.0**-6) * generator.uniform(1, 2, a.shape), np.ones_like(b)
        a[:, 0] = 2.0**8
    elif kind == "subnormal":
        a, b = a * 2.0**-18, b * 2.0**-18
    return (x.astype(np.float16).astype(np.float64) for x in (a, b))  # type: ignore[return-value]


KINDS = ("equal", "cancelling", "huge beside tiny", "one above many", "subnormal", "normal")


def loop(a: Array, b: Array, *, fma: bool = False, flush: bool = False, reverse: bool = False) -> Array:
    """A float32 loop over the inner dimension."""
    if reverse:
        a, b = a[:, ::-1], b[:, ::-1]
    total = np.zeros(len(a), np.float32)
    for k in range(a.shape[1]):
        term = a[:, k] * b[:, k]
        total = (total + (term if fma else term.astype(np.float32))).astype(np.float32)
        if flush:
            total[np.abs(total) < SUBNORMAL] = 0
    return total.astype(np.float64)


def tf32_chain(a: Array, b: Array) -> Array:
    """Blocks of 4 products of truncated operands, as Ampere has them."""
    return chain(simulated.tf32(a), simulated.tf32(b), 4, 24, 23, smallest=-126)


def chain(a: Array, b: Array, n: int, fraction: int, output: int, smallest: int = -14) -> Array:
    """A chain of truncating instructions from zero."""
    return simulated.chain(a, b, np.zeros(len(a)), n, fraction=fraction, output=output, smallest=smallest)


def legal() -> Iterator[tuple[str, str, Kernel]]:
    """Yield profile, what runs, and the kernel."""
    for fma in (False, True):
        name = "FMA loop" if fma else "loop"
        yield "ieee", name, lambda a, b, fma=fma: loop(a, b, fma=fma)  # type: ignore[misc]
        yield "ieee,order=sequential", name, lambda a, b, fma=fma: loop(a, b, fma=fma)  # type: ignore[misc]
    yield "ieee,order=sequential", "loop downwards", lambda a, b: loop(a, b, reverse=True)
    yield "ieee,order=pairwise", "halves", lambda a, b: simulated.pairwise(a * b)
    yield "ieee,order=blocked:32", "blocks of 32", lambda a, b: simulated.blocked(a * b, 32)
    yield "ieee,accumulate=float16", "float16 loop", lambda a, b: simulated.sequential(a * b, "float16")
    yield "amx", "FMA loop that flushes", lambda a, b: loop(a, b, fma=True, flush=True)
    yield "tf32", "chain of tf32 blocks", tf32_chain
    for name, (n, fraction, output) in BLOCKS.items():
        kernel = lambda a, b, n=n, f=fraction, o=output: chain(a, b, n, f, o)  # noqa: E731
        yield name, "chain", kernel  # type: ignore[misc]
        if name != "fp8-fast":
            yield "cuda", f"chain of {name}", kernel  # type: ignore[misc]
            yield "triton", f"chain of {name}", kernel  # type: ignore[misc]
    yield "cuda", "FMA loop", lambda a, b: loop(a, b, fma=True)
    yield "fp8-promoted", "promoted chains", promoted


def promoted(a: Array, b: Array) -> Array:
    """Chains of 128 products with 13 fraction bits, added in float32."""
    return simulated.chains(a, b, 32, 128, fraction=13, output=13, smallest=-14)


def illegal(name: str) -> dict[str, Kernel]:
    """Return instructions that this generation does not have."""
    n, fraction, output = BLOCKS[name]
    return {
        "a fraction bit less": lambda a, b: chain(a, b, n, fraction - 1, output),
        "a result bit less": lambda a, b: chain(a, b, n, fraction, output - 1),
        "three bits less": lambda a, b: chain(a, b, n, fraction - 3, output - 3),
        "half a block": lambda a, b: chain(a, b, n // 2, fraction, output),
        "quarter of a block": lambda a, b: chain(a, b, max(1, n // 4), fraction, output),
    }


def admitted(profile: str, a: Array, b: Array) -> Result:
    """Return what the profile admits for these rows."""
    given = {"a": torch.from_numpy(a).float()[:, None], "b": torch.from_numpy(b).float()[..., None]}
    return Check(PRODUCT, given, profile=profile).outputs()["output"]


def verdicts(result: Result, actual: Array) -> torch.Tensor:
    """Return the codes of the rows."""
    return result.verdict(torch.from_numpy(actual).float()[:, None, None])


def attack(rows: int, long: int) -> int:
    """Print one line for each legal kernel; return how many were violated."""
    sys.stdout.write(f"{'profile':26}{'legal kernel':28}{'rows':>7}{'covered':>9}{'open':>6}{'violated':>9}\n")
    wrong = 0
    for profile, name, kernel in legal():
        codes = torch.cat([
            verdicts(admitted(profile, a, b), kernel(a, b)).reshape(-1)
            for kind in KINDS for inner in (*SHORT, long) for a, b in [data(kind, rows, inner)]
        ])  # fmt: skip
        covered, violated = int((codes == Element.COVERED).sum()), int((codes == Element.VIOLATED).sum())
        wrong += violated
        left = len(codes) - covered - violated
        sys.stdout.write(f"{profile:26}{name:28}{len(codes):>7}{covered:>9}{left:>6}{violated:>9}\n")
    return wrong


def refuse(rows: int, long: int) -> None:
    """Print, for each illegal instruction and kind of data, the largest share of violated rows over all K."""
    sys.stdout.write(f"\n{'profile':20}{'illegal instruction':22}" + "".join(f"{kind:>17}" for kind in KINDS) + "\n")
    for profile in BLOCKS:
        for name, kernel in illegal(profile).items():
            line = f"{profile:20}{name:22}"
            for kind in KINDS:
                shares = [_share(profile, kernel, *data(kind, rows, inner)) for inner in (*SHORT, long)]
                line += f"{max(shares):>16.0%} "
            sys.stdout.write(line.rstrip() + "\n")


def _share(profile: str, kernel: Kernel, a: Array, b: Array) -> float:
    return float((verdicts(admitted(profile, a, b), kernel(a, b)) == Element.VIOLATED).double().mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--long", type=int, default=8191)
    asked = parser.parse_args()
    failed = attack(asked.rows, asked.long)
    refuse(asked.rows, asked.long)
    sys.exit(1 if failed else 0)
