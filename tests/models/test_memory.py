"""Memory of host and device: what can be seen of it without a GPU."""

import resource
from pathlib import Path

import pytest
import torch

from rote.models.memory import Handover, to_device, zeros_as_touched

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
