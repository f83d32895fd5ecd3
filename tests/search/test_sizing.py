"""Slots from free memory: what is promised fits, whatever the model's size."""

import os
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.search import sizing
from byrote.search.base import Limits, SearchOptions
from byrote.search.sizing import GPU_QUERIES, bytes_per_slot, check_slots, choose_slots, entries_per_slot, first_entries
from byrote.search.tree import TreeCache
from tests.search.test_engine_equals_reference import PLAIN
from tests.table import TableModel

LIMITS = Limits(prefix_tokens=50, suffix_tokens=50)
OPTIONS = replace(PLAIN, beam_width=20, pin_verbatim=True)


def gpu_model(bytes_per_entry: int, vocab_size: int = 32_000) -> Any:
    """As far as sizing looks: a model on a CUDA device whose free memory a test sets."""
    device = SimpleNamespace(type="cuda")
    return SimpleNamespace(device=device, vocab_size=vocab_size, tree_bytes_per_entry=lambda: bytes_per_entry)


@given(st.integers(1, 2**21), st.integers(2**20, 2**38), st.integers(1, 40), st.integers(1, 60))
def test_chosen_slots_fit_the_free_memory_of_a_gpu(entry: int, free: int, beam_width: int, suffix: int) -> None:
    options, limits = replace(OPTIONS, beam_width=beam_width), Limits(50, suffix)
    model = gpu_model(entry)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2**38))
        slots = choose_slots(model, options, limits)
        entries = first_entries(model, options, limits, slots)
    assert 1 <= slots <= max(1, GPU_QUERIES // options.lanes)
    worst = TreeCache.worst_case_entries(limits.prefix_tokens, suffix, options.lanes) + options.lanes
    assert entries_per_slot(options, limits) <= entries <= worst
    if slots > 1:
        assert slots * bytes_per_slot(model, options, limits) <= free
        assert slots * bytes_per_slot(model, options, limits, entries=entries) <= free


@given(st.integers(1, 2**21), st.integers(2**30, 2**38))
def test_slots_of_a_gpu_that_fill_half_of_it_at_their_worst_never_run_out(entry: int, free: int) -> None:
    """Thirteen billion parameters with keys of 40 heads are such a case: 819,200 bytes an entry."""
    model, worst = gpu_model(entry), TreeCache.worst_case_entries(50, 50, OPTIONS.lanes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2**38))
        slots, at_worst = choose_slots(model, OPTIONS, LIMITS), sizing.slots_at_worst(model, OPTIONS, LIMITS)
    most = GPU_QUERIES // OPTIONS.lanes
    if 2 * at_worst >= most:
        assert slots == min(most, at_worst)
        assert slots * bytes_per_slot(model, OPTIONS, LIMITS, entries=worst) < free
    else:
        assert slots >= at_worst


@given(entry=st.integers(2**10, 2**21), free=st.integers(2**28, 2**38), taken=st.floats(0, 0.9))
def test_slots_that_ran_out_of_memory_become_those_that_cannot_and_at_least_half(
    entry: int, free: int, taken: float
) -> None:
    model = gpu_model(entry)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2**38))
        slots = choose_slots(model, OPTIONS, LIMITS)
        assume(slots > 1)
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free * (1 - taken)), 2**38))
        fewer = sizing.slots_after_failure(model, OPTIONS, LIMITS, slots)
        at_worst = sizing.slots_at_worst(model, OPTIONS, LIMITS)
    assert slots // 2 <= fewer < slots
    assert fewer in (slots // 2, at_worst)
    assert fewer >= min(at_worst, slots // 2)


def test_a_cpu_gets_enough_slots_to_be_busy_and_at_least_one() -> None:
    model = TableModel.random(0, vocab_size=5)
    assert choose_slots(model, OPTIONS, LIMITS) == 32
    assert choose_slots(model, replace(OPTIONS, beam_width=5_000), LIMITS) == 1


@given(st.integers(1, 2**21), st.integers(0, 2**36))
def test_chosen_slots_fit_half_the_available_memory_of_a_machine(entry: int, available: int) -> None:
    """Were every entry of every slot in use, which memorized text is far from."""
    model = cpu_model(entry)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "available_memory", lambda: available)
        slots = choose_slots(model, OPTIONS, LIMITS)
    worst = first_entries(model, OPTIONS, LIMITS, slots)
    assert 1 <= slots <= 32
    if slots > 1:
        assert slots * bytes_per_slot(model, OPTIONS, LIMITS, entries=worst) <= available / 2


def cpu_model(bytes_per_entry: int) -> Any:
    device = torch.device("cpu")
    return SimpleNamespace(device=device, vocab_size=50, tree_bytes_per_entry=lambda: bytes_per_entry)


def most_slots(model: Any) -> int:
    """The number that the refusal of a huge one names."""
    with pytest.raises(ConfigError, match=r"a search with 1,000,000,000,000 slots would take .* of memory") as refused:
        check_slots(model, OPTIONS, LIMITS, 10**12)
    (number,) = re.findall(r"give slots (\d+) or fewer", str(refused.value))
    return int(number)


@given(st.integers(1, 2**21), st.integers(2**24, 2**36))
def test_on_a_cpu_slots_are_refused_from_where_they_do_not_fit_at_their_worst(entry: int, available: int) -> None:
    model = cpu_model(entry)
    worst = bytes_per_slot(model, OPTIONS, LIMITS, entries=first_entries(model, OPTIONS, LIMITS, 1))
    assume(4 * worst < available)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "available_memory", lambda: available)
        most = most_slots(model)
        check_slots(model, OPTIONS, LIMITS, most)
        check_slots(model, OPTIONS, LIMITS, choose_slots(model, OPTIONS, LIMITS))
        with pytest.raises(ConfigError, match="slots would take"):
            check_slots(model, OPTIONS, LIMITS, most + 1)
    assert available / 2 / (worst + 100_000) < most < available / worst


@given(st.integers(1, 2**21), st.integers(2**28, 2**38), st.floats(0.1, 1))
def test_on_a_gpu_only_what_all_its_memory_could_not_hold_is_refused(entry: int, total: int, free: float) -> None:
    """More than is free is tried: a GPU that runs out gets fewer slots and goes on."""
    model = gpu_model(entry)
    assume(16 * bytes_per_slot(model, OPTIONS, LIMITS) < total)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (int(total * free), total))
        most = most_slots(model)
        check_slots(model, OPTIONS, LIMITS, most)
        check_slots(model, OPTIONS, LIMITS, choose_slots(model, OPTIONS, LIMITS))
    assert most < total / bytes_per_slot(model, OPTIONS, LIMITS)


@pytest.mark.parametrize("options", [replace(OPTIONS, beam_width=10**9), replace(OPTIONS, edit_budget=10**9)])
def test_a_window_that_cannot_fit_alone_is_refused_before_it_is_tried(options: SearchOptions) -> None:
    with pytest.raises(
        ConfigError, match=r"a window of 50 \+ 50 tokens with .* beams would take .* lower --beam-width"
    ):
        check_slots(TableModel.random(0, vocab_size=5), options, LIMITS, 1)


def test_a_window_that_fits_but_for_its_worst_case_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    model = cpu_model(2**20)
    worst = bytes_per_slot(model, OPTIONS, LIMITS, entries=first_entries(model, OPTIONS, LIMITS, 1))
    monkeypatch.setattr(sizing, "available_memory", lambda: worst // 2)
    check_slots(model, OPTIONS, LIMITS, choose_slots(model, OPTIONS, LIMITS))
    with pytest.raises(ConfigError, match=r"a search with 2 slots .* give slots 1 or fewer"):
        check_slots(model, OPTIONS, LIMITS, 2)


def test_available_memory_is_known_even_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < sizing.available_memory() <= machine
    monkeypatch.setattr(sizing.Path, "read_text", lambda *_, **__: "nothing: here")
    assert sizing.available_memory() == machine // 2


def test_expected_entries_never_exceed_the_worst_case() -> None:
    for suffix in (1, 2, 50):
        limits = Limits(50, suffix)
        worst = TreeCache.worst_case_entries(50, suffix, OPTIONS.lanes)
        assert 50 < entries_per_slot(OPTIONS, limits) <= worst
