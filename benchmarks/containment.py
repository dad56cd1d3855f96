"""Every rule against FLINT: on exact operands, the exact value lies within |mid - exact| <= rad.

    python benchmarks/containment.py [--only REGEX] [--samples 2] [--dtype float32] [--json FILE]

The steps of PyTorch's operator database, forward and gradient, and the cases of containment_cases.py, each evaluated
on the midpoints of the steps before it taken as exact (contained.py). Every sample is tried as it is, and once more
with a third of the values of each input replaced by zeros of both signs, ties, integers, subnormal and large numbers.
FILE receives, for each rule, the first entry of the database that reaches it: tests/core/rules/test_containment.py
holds that no rule is without one. Exit code 1 where a value lies outside or, in a run over everything, where a rule was
not reached.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import re
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.contained import Found, check_call, check_program
from benchmarks.containment_cases import CASES, WITHOUT, edges
from benchmarks.operators import _real as real_pairs
from benchmarks.operators import check_of, entries, samples, title
from kernels_core.doubles.operations import OPERATIONS
from kernels_core.errors import ExactRefError
from kernels_core.kernel.call import draw_upstream
from kernels_core.program import Program
from kernels_core.rules import registry

Traced = tuple[Program, dict[str, torch.Tensor]]


def programs(op: Any, dtype: torch.dtype, count: int) -> Iterator[Traced]:
    """Yield the traced forward and gradient of the first samples of an entry, with their inputs."""
    for sample in samples(op, dtype, count):

        def function(given: Any, args: Any, kwargs: Any) -> Any:
            return torch.utils._pytree.tree_map(real_pairs, op(given, *args, **kwargs))

        arguments = {"given": sample.input, "args": list(sample.args), "kwargs": dict(sample.kwargs)}
        try:
            check = check_of(function, arguments)
            program = check.joint if check.wrt else check.forward
            yield program, {**check.tensors, **(check.upstream(draw_upstream(check, 0)) if check.wrt else {})}
        except ExactRefError:
            continue


def on_edges(inputs: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Return the inputs with about a third of their floating values replaced by those of `edges`."""
    generator = torch.Generator().manual_seed(seed)

    def replaced(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        chosen = torch.rand(tensor.shape, generator=generator) < 0.33
        values = edges(tensor.dtype)
        return torch.where(chosen, values[torch.randint(len(values), tensor.shape, generator=generator)], tensor)

    return {name: replaced(t.contiguous()) for name, t in inputs.items()}


def check_case(name: str, dtype: torch.dtype) -> Found:
    """Compare the case of a rule that is called directly, all its elements."""
    *args, options = (*CASES[name](dtype), {})
    if args and isinstance(args[-1], dict):
        options = args.pop()
    namespace, op, overload = name.split(".")
    call = getattr(getattr(getattr(torch.ops, namespace), op), overload)
    return check_call(name, call, tuple(args), options, elements=64)


def _sweep(only: str, dtype: torch.dtype, count: int) -> tuple[Found, dict[str, str]]:
    total, reached = Found(), dict[str, str]()
    for op in (op for op in entries(dtype) if re.search(only, title(op))):
        found = Found()
        for number, (program, inputs) in enumerate(programs(op, dtype, count)):
            found.add(check_program(program, inputs))
            with contextlib.suppress(torch.linalg.LinAlgError):  # singular with the zeros in it
                found.add(check_program(program, on_edges(inputs, number)))
        for name in found.compared:
            reached.setdefault(name, title(op))
        total.add(Found(found.compared, found.doubled, [f"{title(op)}: {line}" for line in found.wrong]))
    return total, reached


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="regular expression on the entry's name")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start, dtype = time.process_time(), getattr(torch, options.dtype)
    total, reached = _sweep(options.only, dtype, options.samples)
    for name in CASES if not options.only else ():
        total.add(check_case(name, dtype))
    wanted = set(registry()) - set(WITHOUT)
    missing = sorted(wanted - set(+total.compared))
    sys.stdout.write("".join(f"{line}\n" for line in total.wrong))
    sys.stdout.write(
        f"{len(wanted) - len(missing)} of {len(wanted)} rules compared on {total.compared.total()} "
        f"elements, {len(total.wrong)} wrong; {time.process_time() - start:.0f} s\n"
        f"not reached: {', '.join(missing) or 'none'}\n"
    )
    if dtype is torch.float64:
        own = sorted(set(OPERATIONS) - set(+total.doubled))
        sys.stdout.write(f"{len(set(OPERATIONS) & set(+total.doubled))} of {len(OPERATIONS)} double-double operations, "
                         f"{total.doubled.total()} elements with those of FLINT alone; not reached: "
                         f"{', '.join(own) or 'none'}\n")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(dict(sorted(reached.items())), indent=1) + "\n")
    return int(bool(total.wrong) or (not options.only and bool(missing)))


if __name__ == "__main__":
    sys.exit(main())
