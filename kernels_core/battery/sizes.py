"""Other sizes, where the caller left them free: none, one, one less and one more than a block, primes.

One of the primes lies beyond the blocks of 64, 128 and 256 that kernels are made of: it has whole blocks and a tail.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels_core.battery.item import Finding, Item, not_applicable
from kernels_core.battery.judgement import Judgement
from kernels_core.battery.other_inputs import count
from kernels_core.battery.subject import Size, Subject
from kernels_core.errors import ExactRefError
from kernels_core.tracing import trace as tracing

MOST = 10  # sizes that are run; each is a check of its own
BEYOND_BLOCKS = 263  # 4 x 64 + 7, 2 x 128 + 7, 256 + 7, and a prime
LARGEST = 1 << 18  # elements of the inputs together, beyond which a size is left out for cost


def interesting(size: int) -> Iterator[int]:
    """Yield the sizes to try in place of one: 1, a prime beyond usual blocks, 0, the neighbours, the next prime."""
    prime = next(n for n in range(size + 2, 4 * size + 8) if all(n % d for d in range(2, int(n**0.5) + 1)))
    large = [BEYOND_BLOCKS] if size < BEYOND_BLOCKS - 7 else []
    yield from dict.fromkeys(n for n in (1, *large, 0, size + 1, size - 1, prime) if n != size and n >= 0)


def _sizes(subject: Subject) -> Finding:
    sizes = subject.settings.sizes
    if not sizes:
        return not_applicable("every size is given")
    judgement = Judgement(subject)
    for size in sizes[:MOST]:
        _look_at(judgement, size)
    left_out = f"; {len(sizes) - MOST} sizes left out for cost" if len(sizes) > MOST else ""
    return judgement.finding(", ".join(judgement.done) + left_out)


def _look_at(judgement: Judgement, size: Size) -> None:
    """Verify one size. A kernel may refuse it; the reference may have no value there."""
    inputs, wrt = size.inputs()
    if sum(t.numel() for t in tracing.named_tensors(inputs).values()) > LARGEST:
        judgement.done.append(f"{size.label} left out for cost")
        return
    try:
        report = judgement.subject.again(inputs, wrt=wrt)
    except ExactRefError:
        judgement.done.append(f"{size.label} (the reference has no value)")
        return
    count(judgement, size.label, report)


ITEMS = (Item("sizes", "size 0, size 1, block sizes +-1 and primes, where sizes are free", _sizes),)
