"""Whole tensors from the pieces that tiles give: put side by side, or added up."""

from __future__ import annotations

import threading

import torch

from kernels_core.enclosure import Enclosure, all_finite
from kernels_core.errors import UsageError
from kernels_core.filter.memory import room


class Total:
    """A sum put together from the parts of tiles: mids and bounds add up; infinities and NaN keep their class."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.mid: torch.Tensor | None = None
        self.bound: torch.Tensor | None = None
        self.certain: torch.Tensor | None = None
        self.loose: torch.Tensor | None = None
        self.early: dict[int, Enclosure] = {}
        self.next, self.lock = 0, threading.Lock()

    def add(self, number: int, part: Enclosure) -> None:
        """Take in the part of one tile; the parts are added in the order of the tiles, whichever thread is first."""
        with self.lock:
            self.early[number] = part
            while self.next in self.early:
                self._add(self.early.pop(self.next))
                self.next += 1

    def _add(self, part: Enclosure) -> None:
        bound = part.bound_or_zero()
        if not all_finite(bound) or not all_finite(part.mid):
            certain, loose = ~part.mid.isfinite() & (bound == 0), ~bound.isfinite()
            self.certain = certain if self.certain is None else self.certain | certain
            self.loose = loose if self.loose is None else self.loose | loose
        if self.mid is None or self.bound is None:
            self.mid, self.bound = part.mid, bound
        else:
            self.mid, self.bound = self.mid + part.mid, (self.bound + bound) * _ADDED

    def value(self) -> Enclosure:
        """Return the enclosure of the whole sum."""
        if self.mid is None or self.bound is None:
            raise UsageError("an empty run has no value")
        if self.certain is None or self.loose is None:
            return Enclosure(self.mid, self.bound)
        certain = self.certain & ~self.loose & ~self.mid.isfinite()
        mid = torch.where(certain | self.mid.isfinite(), self.mid, torch.nan)
        bound = torch.where(self.mid.isfinite(), self.bound, torch.inf)
        return Enclosure(mid, torch.where(certain, 0.0, torch.where(bound.isnan(), torch.inf, bound)))


_ADDED = 1 + 2.0**-52  # the float64 rounding of adding one more tile's bound


_PARTS = ("mid", "bound", "unsure", "low", "rad")


class Assembled:
    """A tensor put together from tiles."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        """Start empty; `shape` is that of the whole tensor."""
        self.shape = shape
        self.parts: dict[str, torch.Tensor] = {}
        self.begun, self.lock = False, threading.Lock()

    def put(self, piece: tuple[slice, ...], box: tuple[int, ...], tile: Enclosure) -> None:
        """Take in one tile: the slices of the leading dimensions and their sizes, and its enclosure."""
        box = box + self.shape[len(box) :]
        given = {name: getattr(tile, name) for name in _PARTS}
        with self.lock:
            for name, part in given.items():
                if part is not None and name not in self.parts:
                    self.parts[name] = room(self.shape, part)
                    if self.begun:  # earlier tiles had none
                        self.parts[name].zero_()
            self.begun = True
            present = list(self.parts)
        for name in present:
            self.parts[name][piece] = 0 if given[name] is None else given[name].expand(box)

    def value(self) -> Enclosure:
        """Return the whole enclosure."""
        if not self.parts:
            raise UsageError("an empty run has no value")
        return Enclosure(**self.parts)
