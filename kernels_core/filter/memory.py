"""Memory for results: what the system has given once is used again.

Touching 32 MB for the first time costs as much as ten operations on them in pages of 4 kB, and three in large pages.
Checks come in series of one size (a battery, a search, a sweep), so the memory of results that are gone is kept for the
next, up to 256 MB of it.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

SMALL = 1 << 20  # bytes that are not worth keeping
MOST = 1 << 28  # bytes that are kept


class Kept:
    """Memory that nothing uses; the oldest is given up first.

    Memory comes back from finalisers, which run wherever the garbage collector does, also in the middle of a method
    here: there is no lock to wait for, each change is one operation of a dict, and no list of it makes new objects.
    """

    def __init__(self, most: int = MOST) -> None:
        """Start empty, to keep at most `most` bytes."""
        self.most, self._free = most, dict[int, np.ndarray]()

    def room(self, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array without values; its memory comes back here when nothing holds the array any longer.

        A view that numpy makes of it does not hold it; a tensor made of it does, and so do views of the tensor.
        """
        size = math.prod(shape) * dtype.itemsize
        if size < SMALL:
            return np.empty(shape, dtype)
        store = self._taken(size)
        array: np.ndarray = store.view(dtype).reshape(shape)
        weakref.finalize(array, self._give_back, store).atexit = False
        return array

    def _taken(self, size: int) -> np.ndarray:
        found: np.ndarray
        for found in reversed(list(self._free.values())):
            if found.nbytes == size and self._free.pop(id(found), None) is not None:
                return found
        return np.empty(size, np.uint8)  # numpy asks the system for large pages where there are any

    def _give_back(self, store: np.ndarray) -> None:
        self._free[id(store)] = store
        kept = list(self._free.values())
        total = sum(other.nbytes for other in kept)
        for other in kept:
            if total <= self.most:
                break
            self._free.pop(id(other), None)
            total -= other.nbytes


KEPT = Kept()


def room(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor of the dtype and on the device of `like`."""
    if like.device.type != "cpu":
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    return torch.from_numpy(KEPT.room(shape, like.new_empty(0).numpy().dtype))


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed tensors, as it does in any program that has freed a large tensor.

    glibc returns freed blocks to the system above a threshold that grows to twice the size of the largest block below
    32 MB ever freed, and memory that is taken from the system again and again cost more than what is computed in it.
    """
    torch.empty(31 << 20, dtype=torch.uint8)
