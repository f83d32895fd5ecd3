"""Slots from free memory: what is promised fits, whatever the model's size."""

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rote.models.table import TableModel
from rote.search import sizing
from rote.search.base import Limits
from rote.search.cache import TreeCache
from rote.search.sizing import GPU_QUERIES, bytes_per_slot, choose_slots, entries_per_slot, first_entries
from tests.search.test_engine_equals_reference import PLAIN

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


def test_a_cpu_gets_enough_slots_to_be_busy_and_at_least_one() -> None:
    model = TableModel.random(0, vocab_size=5)
    assert choose_slots(model, OPTIONS, LIMITS) == 32
    assert choose_slots(model, replace(OPTIONS, beam_width=5_000), LIMITS) == 1


@given(st.integers(1, 2**21), st.integers(0, 2**36))
def test_chosen_slots_fit_half_the_available_memory_of_a_machine(entry: int, available: int) -> None:
    """Were every entry of every slot in use, which memorized text is far from."""
    model: Any = SimpleNamespace(device=torch.device("cpu"), vocab_size=50, tree_bytes_per_entry=lambda: entry)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "available_memory", lambda: available)
        slots = choose_slots(model, OPTIONS, LIMITS)
    worst = first_entries(model, OPTIONS, LIMITS, slots)
    assert 1 <= slots <= 32
    if slots > 1:
        assert slots * bytes_per_slot(model, OPTIONS, LIMITS, entries=worst) <= available / 2


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
