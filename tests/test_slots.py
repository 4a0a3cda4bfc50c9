"""Slots of a packed batch: every row is in one, and the tables say whose they are."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from didlm.kernels.slots import Slots, table_plain
from interpreter import needs_triton, runs_as_main

LENGTHS = [[5, 1, 0, 17, 40], [0, 3], [130], [0, 0, 5], [1] * 40, [8, 16, 8]]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.sampled_from([1, 4, 8, 64]))
def test_every_row_is_in_one_slot_of_its_sequence(lengths, size) -> None:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    slots = Slots(offsets, int(offsets[-1]))
    rows = []
    table = table_plain(offsets, slots.count(size), size).tolist()
    for slot, sequence in enumerate(table):
        begin, end = int(offsets[sequence]), int(offsets[sequence + 1])
        start = begin + (slot - begin // size - sequence) * size
        rows += range(start, min(start + size, end))
    assert rows == list(range(int(offsets[-1])))


def check(device: str) -> None:
    for lengths in LENGTHS:
        for size in (1, 8, 64):
            offsets = torch.tensor([0, *lengths], device=device).cumsum(0)
            slots = Slots(offsets, int(offsets[-1]))
            found = slots.table(size)
            assert torch.equal(found, table_plain(offsets, slots.count(size), size))
            assert slots.table(size) is found


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_kernel_is_right() -> None:
    check("cuda")


@needs_triton
def test_the_kernel_is_right_in_the_interpreter_of_triton() -> None:
    assert runs_as_main(__file__)


if __name__ == "__main__":
    check("cpu")
