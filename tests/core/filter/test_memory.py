"""Memory of results that are gone is used again, never that of a result that something still holds."""

import gc

import numpy as np
import torch

from kernels_core.filter.memory import SMALL, Kept, room

SIZE = (SMALL // 8,)
FLOAT64 = np.dtype(np.float64)


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_comes_back_when_nothing_holds_it():
    kept = Kept()
    first = kept.room(SIZE, FLOAT64)
    place = address(first)
    del first
    assert address(kept.room((2, SMALL // 16), FLOAT64)) == place


def test_a_view_of_a_tensor_holds_its_memory():
    kept = Kept()
    tensor = torch.from_numpy(kept.room(SIZE, FLOAT64)).fill_(1)
    part = tensor[5:8]
    del tensor
    gc.collect()
    kept.room(SIZE, FLOAT64)[:] = 2
    assert (part == 1).all()


def test_no_more_is_kept_than_was_said_and_the_oldest_goes_first():
    kept = Kept(most=2 * SMALL)
    rooms = [kept.room((SMALL,), np.dtype(np.uint8)) for _ in range(3)]
    places = [address(array) for array in rooms]
    for _ in range(3):
        del rooms[0]
    assert {address(array) for array in [kept.room((SMALL,), np.dtype(np.uint8)) for _ in range(2)]} <= set(places[1:])


def test_rooms_have_shape_and_dtype_whatever_they_held_before():
    held = room((SMALL // 8,), torch.zeros(1, dtype=torch.float64)).fill_(0.5)
    del held
    again = room((SMALL // 4, 2), torch.zeros(1, dtype=torch.int32))
    assert (again.shape, again.dtype) == ((SMALL // 4, 2), torch.int32)
    assert room((3, 0), torch.zeros(1, dtype=torch.bool)).shape == (3, 0)


def test_memory_comes_back_from_the_garbage_collector_in_the_middle_of_another_return():
    kept = Kept(most=2 * SMALL)

    def returned():
        cycle = [kept.room((SMALL,), np.dtype(np.uint8))]
        cycle.append(cycle)

    class Collecting(dict):
        def values(self):
            gc.collect()
            return super().values()

    kept._free = Collecting()
    for _ in range(4):
        returned()
        kept.room((SMALL,), np.dtype(np.uint8))
    assert sum(store.nbytes for store in kept._free.values()) <= 2 * SMALL
