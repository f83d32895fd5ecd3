"""Memory of host and device: what can be seen of it without a GPU."""

import pytest
import torch

from rote.models.memory import Handover, to_device, zeros_as_touched


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_zeros_are_zeros_of_the_asked_kind_and_can_be_written(dtype: torch.dtype) -> None:
    zeros = zeros_as_touched((3, 5, 2), torch.ones(1, dtype=dtype))
    assert zeros.shape == (3, 5, 2)
    assert zeros.dtype == dtype
    assert not zeros.any()
    assert zeros.is_contiguous()
    zeros[1, 2] = 7
    assert zeros.sum() == 14


def test_room_that_is_not_used_takes_no_memory() -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    zeros = zeros_as_touched((1 << 31,), torch.ones(1, dtype=torch.float32))  # 8 GiB
    zeros[:1000] = 1
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 1 << 18


def test_a_handover_gives_back_what_was_given() -> None:
    given = [torch.arange(5), torch.randn(2, 3)]
    arrived = Handover(given).wait()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(arrived, given, strict=True))
    assert Handover(()).wait() == []


def test_a_tensor_for_the_host_stays_there() -> None:
    assert torch.equal(to_device(torch.arange(3), torch.device("cpu")), torch.arange(3))
