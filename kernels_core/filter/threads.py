"""Work on many pieces, each evaluated by one thread.

PyTorch's own way is to split every operation among its threads, which then wait for each other after every operation.
For operations on pieces that fit into a core's cache this waiting costs more than the work, above all where other
programs use the cores. Here each thread takes piece after piece and never waits for another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def share(work: Callable[[Iterator[Item]], Outcome], items: Sequence[Item], device: torch.device) -> list[Outcome]:
    """Call `work` once in each of as many threads as PyTorch may use, with one iterator that they share.

    Args:
        work: takes items until there are none left; must write to places of its own only.
        items: the pieces.
        device: of the tensors; another than the CPU orders its own work, and gets a single call.

    Returns:
        What each call returned, in no order. PyTorch's number of threads is as before.
    """
    threads = torch.get_num_threads()

    def alone(source: Iterator[Item]) -> Outcome:
        with torch.no_grad():  # a new thread starts with gradients enabled
            return work(source)

    source = iter(items)  # a list's iterator hands each item to one thread only
    if len(items) <= 1 or device.type != "cpu":
        return [alone(source)]
    torch.set_num_threads(1)  # threads that are started now take this over
    try:
        with ThreadPoolExecutor(threads) as pool:
            others = [pool.submit(alone, source) for _ in range(min(threads, len(items)) - 1)]
            return [alone(source), *(other.result() for other in others)]
    finally:
        torch.set_num_threads(threads)


def each(function: Callable[[Item], Outcome], items: Sequence[Item], device: torch.device) -> list[Outcome]:
    """Return what `function` makes of every item, in their order; each is evaluated by one thread, as in `share`."""

    def work(source: Iterator[tuple[int, Item]]) -> list[tuple[int, Outcome]]:
        return [(place, function(item)) for place, item in source]

    found = dict(itertools.chain.from_iterable(share(work, list(enumerate(items)), device)))
    return [found[place] for place in range(len(items))]
