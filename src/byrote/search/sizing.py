"""How many windows to search at once, from the memory that is free; and errors for what would not fit."""

import os
from pathlib import Path

import torch

from byrote.errors import ConfigError
from byrote.models.base import TreeModel
from byrote.search.base import Limits, SearchOptions
from byrote.search.tree import TreeCache

EXPECTED_ENTRIES_PER_LANE = 10
"""Entries per lane in use at once, beside the prefix and one path. Ordinary text takes fewer (192 entries a slot were
measured with 21 lanes), text that is searched to its end three times as many (896, of 1,079 at the worst)."""
CPU_QUERIES = 672
"""Query positions per forward at which matrix products of a CPU run near their best (32 slots of 21 lanes)."""
CPU_SHARE = 0.5
"""Share of a machine's available memory that slots may take on a CPU, were every entry in use."""
GPU_SHARE = 0.85
"""Share of the free GPU memory that slots may take; activations and logits live in the rest."""
USABLE_SHARE = 0.9
"""Share of the memory beyond which nothing is begun, even if the user sets it."""
GPU_QUERIES = 2560
"""Query positions per forward that fill a large GPU in whole tiles; more take longer without being faster."""
LEAST_FILLED = 0.5
"""Share of those positions from which slots that cannot run out of memory are preferred to more slots."""


def _worst_entries(options: SearchOptions, limits: Limits) -> int:
    return TreeCache.worst_case_entries(*limits, options.lanes)


def entries_per_slot(options: SearchOptions, limits: Limits) -> int:
    """Memory entries a slot is expected to need. Dead ones are reused, so it is well below the worst case."""
    worst = _worst_entries(options, limits)
    return worst if options.keep_states else min(worst, sum(limits) + EXPECTED_ENTRIES_PER_LANE * options.lanes)


def bytes_per_slot(model: TreeModel, options: SearchOptions, limits: Limits, *, entries: int | None = None) -> int:
    """Memory one slot holds between steps: keys and values of its entries, and its ancestry mask."""
    held = entries_per_slot(options, limits) if entries is None else entries
    bookkeeping = _worst_entries(options, limits) * (options.lanes + 16)
    return held * model.tree_bytes_per_entry() + bookkeeping


def first_entries(model: TreeModel, options: SearchOptions, limits: Limits, slots: int) -> int:
    """Entries to open a session with: the worst case where memory allows it, because growing copies everything."""
    worst = _worst_entries(options, limits)
    if model.device.type != "cuda":
        return worst  # pages of a CPU's memory that are never used are never taken
    fitting = int(free_memory(model.device) * GPU_SHARE * 0.8) // (slots * model.tree_bytes_per_entry())
    return min(worst, max(entries_per_slot(options, limits), fitting))


def available_memory() -> int:
    """Bytes of the machine's memory that are free or can be freed; half of all where that is unknown."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device, those included that torch holds and does not use."""
    if device.type != "cuda":
        return available_memory()
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def usable_memory(device: torch.device) -> int:
    """Bytes that a user's settings may take: of what is available to a CPU, or of all that a GPU has, which reports in
    time when it runs out."""
    memory = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else available_memory()
    return int(memory * USABLE_SHARE)


def require_memory(needed: int, device: torch.device, *, what: str, advice: str) -> None:
    """A ConfigError for what does not fit, before it is allocated: a CPU overcommits, and then the machine freezes."""
    usable = usable_memory(device)
    if needed > usable:
        raise ConfigError(f"{what} would take {_size(needed)}, but {_size(usable)} of memory can be used; {advice}.")


def require_fitting(count: int, each: int, device: torch.device, *, what: str, option: str) -> None:
    """A ConfigError when `count` things do not fit together, with how many would."""
    fitting = max(1, usable_memory(device) // each)
    require_memory(count * each, device, what=what, advice=f"give {option} {fitting} or fewer, or leave it out")


def bytes_to_reserve(model: TreeModel, options: SearchOptions, limits: Limits) -> int:
    """Memory of one slot with the logits and children of its lanes. A GPU that runs out can try again with fewer slots,
    so there it is what a slot is expected to need; a CPU cannot, so there every entry counts as used."""
    entries = None if model.device.type == "cuda" else first_entries(model, options, limits, 1)
    return bytes_per_slot(model, options, limits, entries=entries) + _working_bytes(model, options)


def _working_bytes(model: TreeModel, options: SearchOptions) -> int:
    children = min(options.policy.width(model.vocab_size), options.max_children or model.vocab_size)
    per_child = 64 + 12 * (options.edit_budget + 1)  # scores, places and masks; edit rows of twice the budget, thrice
    per_child += (
        len(options.policies) * 8 * (options.edit_budget + 4)
    )  # masses by least distance, and log-probabilities
    return options.lanes * (model.vocab_size * 12 + children * per_child)


def check_slots(model: TreeModel, options: SearchOptions, limits: Limits, slots: int) -> None:
    """A ConfigError for slots that do not fit into the memory. A single one need not fit at its worst."""
    least = bytes_per_slot(model, options, limits) + _working_bytes(model, options)
    require_memory(
        least,
        model.device,
        what=f"a window of {limits.prefix_tokens} + {limits.suffix_tokens} tokens with {options.beam_width:,} beams",
        advice="lower --beam-width or shorten the window",
    )
    if slots > 1:
        each = bytes_to_reserve(model, options, limits)
        require_fitting(slots, each, model.device, what=f"a search with {slots:,} slots", option="slots")


def choose_slots(model: TreeModel, options: SearchOptions, limits: Limits) -> int:
    """Slots for this device: what fits the free memory of a GPU, or what keeps a CPU's caches warm.

    A GPU that could nearly be filled with slots whose every entry is in use gets that many: they cannot run out of
    memory. Otherwise it gets what text is expected to need, and `slots_after_failure` when that was too much.
    """
    if model.device.type != "cuda":
        fits = int(free_memory(model.device) * CPU_SHARE) // bytes_to_reserve(model, options, limits)
        return max(1, min(CPU_QUERIES // options.lanes, fits))
    most = GPU_QUERIES // options.lanes
    fits = slots_at_worst(model, options, limits)
    if fits < LEAST_FILLED * most:
        fits = int(free_memory(model.device) * GPU_SHARE) // bytes_to_reserve(model, options, limits)
    return max(1, min(most, fits))


def slots_at_worst(model: TreeModel, options: SearchOptions, limits: Limits) -> int:
    """Slots that fit into the free memory with every entry in use."""
    worst = bytes_per_slot(model, options, limits, entries=_worst_entries(options, limits))
    share = GPU_SHARE if model.device.type == "cuda" else CPU_SHARE
    return int(free_memory(model.device) * share) // (worst + _working_bytes(model, options))


def slots_after_failure(model: TreeModel, options: SearchOptions, limits: Limits, slots: int) -> int:
    """Fewer than the `slots` (at least two) that ran out of memory: as many as cannot run out again, but at least half.

    Where all of them should have fitted, something else takes memory, and it is half.
    """
    fits = slots_at_worst(model, options, limits)
    return fits if slots // 2 < fits < slots else slots // 2


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"
