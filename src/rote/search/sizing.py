"""How many windows to search at once, from the memory that is free."""

import os
from pathlib import Path

import torch

from rote.models.base import TreeModel
from rote.search.base import Limits, SearchOptions
from rote.search.cache import TreeCache

EXPECTED_ENTRIES_PER_LANE = 10
"""Entries per lane in use at once, beside the prefix and one path, that memorized text mostly needs."""
CPU_QUERIES = 672
"""Query positions per forward at which matrix products of a CPU run near their best (32 slots of 21 lanes)."""
CPU_SHARE = 0.5
"""Share of a machine's available memory that slots may take on a CPU, were every entry in use."""
GPU_SHARE = 0.85
"""Share of the free GPU memory that slots may take; activations and logits live in the rest."""
GPU_QUERIES = 2560
"""Query positions per forward that fill a large GPU in whole tiles; more take longer without being faster."""


def entries_per_slot(options: SearchOptions, limits: Limits) -> int:
    """Memory entries a slot is expected to need. Dead ones are reused, so it is well below the worst case."""
    worst = TreeCache.worst_case_entries(limits.prefix_tokens, limits.suffix_tokens, options.lanes)
    return min(worst, limits.prefix_tokens + limits.suffix_tokens + EXPECTED_ENTRIES_PER_LANE * options.lanes)


def bytes_per_slot(model: TreeModel, options: SearchOptions, limits: Limits, *, entries: int | None = None) -> int:
    """Memory one slot takes: keys and values of its entries, its ancestry mask, and the logits of its lanes."""
    held = entries_per_slot(options, limits) if entries is None else entries
    worst = TreeCache.worst_case_entries(limits.prefix_tokens, limits.suffix_tokens, options.lanes) + options.lanes
    bookkeeping = worst * (options.lanes + 16)
    return held * model.tree_bytes_per_entry() + bookkeeping


def first_entries(model: TreeModel, options: SearchOptions, limits: Limits, slots: int) -> int:
    """Entries to open a session with: the worst case where memory allows it, because growing copies everything."""
    worst = TreeCache.worst_case_entries(limits.prefix_tokens, limits.suffix_tokens, options.lanes) + options.lanes
    if model.device.type != "cuda":
        return worst  # pages of a CPU's memory that are never used are never taken
    expected = entries_per_slot(options, limits)
    free, _ = torch.cuda.mem_get_info(model.device)
    return min(worst, max(expected, int(free * GPU_SHARE * 0.8) // (slots * model.tree_bytes_per_entry())))


def available_memory() -> int:
    """Bytes of the machine's memory that are free or can be freed; half of all where the system does not say."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def choose_slots(model: TreeModel, options: SearchOptions, limits: Limits) -> int:
    """Slots for this device: what fits the free memory of a GPU, or what keeps a CPU's caches warm."""
    if model.device.type != "cuda":
        worst = first_entries(model, options, limits, 1)
        fits = int(available_memory() * CPU_SHARE) // bytes_per_slot(model, options, limits, entries=worst)
        return max(1, min(CPU_QUERIES // options.lanes, fits))
    free, _ = torch.cuda.mem_get_info(model.device)
    logits = options.lanes * model.vocab_size * 12
    fits = int(free * GPU_SHARE) // (bytes_per_slot(model, options, limits) + logits)
    return max(1, min(GPU_QUERIES // options.lanes, fits))
