"""Memory of host and device: what can be seen of it without a GPU."""

import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from byrote.models.packing import Handover, apart, side_by_side, to_device, together_to_device, zeros_as_touched

STATM = Path("/proc/self/statm")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_zeros_are_zeros_of_the_asked_kind_and_can_be_written(dtype: torch.dtype) -> None:
    zeros = zeros_as_touched((3, 5, 2), torch.ones(1, dtype=dtype))
    assert zeros.shape == (3, 5, 2)
    assert zeros.dtype == dtype
    assert not zeros.any()
    assert zeros.is_contiguous()
    zeros[1, 2] = 7
    assert zeros.sum() == 14


def resident_bytes() -> int:
    return int(STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not STATM.exists(), reason="resident pages are read from /proc")
def test_room_that_is_not_used_takes_no_memory() -> None:
    before = resident_bytes()
    zeros = zeros_as_touched((1 << 28,), torch.ones(1, dtype=torch.float32))  # 1 GiB
    zeros[:1000] = 1
    assert resident_bytes() - before < zeros.nbytes // 16


@pytest.mark.skipif(not STATM.exists(), reason="resident pages are read from /proc")
def test_a_few_rows_of_every_slot_take_no_memory_for_the_others() -> None:
    before = resident_bytes()
    zeros = zeros_as_touched((64, 1 << 20), torch.ones(1, dtype=torch.float32))  # 4 MiB a slot
    zeros[:, :1000] = 1
    assert resident_bytes() - before < zeros.nbytes // 16


def test_a_handover_gives_back_what_was_given() -> None:
    given = [torch.arange(5), torch.randn(2, 3)]
    arrived = Handover(given).wait()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(arrived, given, strict=True))
    assert Handover(()).wait() == []


def test_a_tensor_for_the_host_stays_there() -> None:
    assert torch.equal(to_device(torch.arange(3), torch.device("cpu")), torch.arange(3))


KINDS = st.sampled_from(["int64", "int32", "int16", "bool", "float64", "uint8"])
SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


@given(st.lists(arrays.arrays(KINDS, SHAPES), min_size=1, max_size=6))
def test_arrays_that_are_sent_together_arrive_as_they_were(parts: list[NDArray[np.generic]]) -> None:
    packed, begins = side_by_side(parts, is_pinned=False)
    for sent, arrived, at_home in zip(
        parts, apart(packed, begins, parts), together_to_device(parts, torch.device("cpu")), strict=True
    ):
        for tensor in (arrived, at_home):
            assert tensor.numpy().dtype == sent.dtype
            np.testing.assert_array_equal(tensor.numpy(), sent)


def test_arrays_that_are_not_contiguous_are_sent_in_their_own_order() -> None:
    turned = np.arange(12).reshape(3, 4).T[::2]
    (arrived,) = apart(*side_by_side([turned], is_pinned=False), [turned])
    np.testing.assert_array_equal(arrived.numpy(), turned)
