"""What a scan will take on GPUs: token evaluations, forwards, memory, slots and hours, from what was measured on one.

A forward of n tokens that gives r rows of logits takes, in a model of L layers,

    L · (n · operations per token / rate + per_layer) + r · operations of the head / rate + r · vocabulary · c + d

and a scan is a number of such forwards, beside a time per window. The constants were fitted to the benches named in
`measured_costs`.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from rote.errors import ConfigError
from rote.scan.model_shapes import ModelShape

GPU_BYTES = 139 * 2**30
"""Memory of an H200."""
USABLE_SHARE = 0.85
"""What weights and slots may take of it; activations and logits live in the rest."""
CHUNK_SHARE = 0.35
"""What the chains of a chunk may take of the memory that weights leave."""
LINK_BYTES_PER_SECOND = 300e9
"""Assumed, not measured: what a sum over GPUs moves per second and GPU."""
PLAIN_LAYERS = 1.28
"""Time of layers that are not compiled, as those over several GPUs, by that of compiled ones: measured on one GPU at 7B
shape (teacher forcing in bench/results/scan_gpu_7b.json)."""
WINDOWS_PER_FORWARD = 256
WINDOWS_PER_CHUNK = 512
QUERIES_PER_FORWARD = 2560
ENTRIES_PER_LANE = 10
LEAST_FILLED = 0.5
LOGIT_BYTES = 12
AUDIT_SHARE = 0.045
AUDIT_LEAST = 100
"""As in `search/sizing.py`, `scan/score.py` and `scan/options.py`, which decide; a test compares."""
PEAK_SHARE = 0.78
"""Entries that memorized text takes at its peak, of the worst case; slots that then do not fit become fewer."""
STEPS_OF_ORDINARY_TEXT = 11
LOST_SHARE = 0.75
"""How far searches are when slots become fewer, and begun again."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Fitted constants, in seconds unless they say otherwise."""

    operations_per_second: float
    per_layer: float
    """Of a forward, however few its tokens: weights and memory are read, kernels started."""
    per_row_and_token: float
    """Of a row of logits, by vocabulary: sorting and adding up."""
    per_forward: float
    per_window: float
    """On the host."""
    greedy_evals: float
    """Token evaluations of a greedy answer to ordinary text, until it is beyond the budget."""
    audited_evals: float
    """Token evaluations of an audited window of ordinary text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What is to be measured."""

    windows: int
    memorized_share: float
    prefix_tokens: int = 50
    suffix_tokens: int = 50
    beam_width: int = 20

    @property
    def first_tokens(self) -> int:
        """Tokens of the first forward of a window; nothing is asked after the last."""
        return self.prefix_tokens + self.suffix_tokens - 1

    @property
    def memorized_evals(self) -> int:
        """Of a search to full depth. One of the beams is the text itself, which the first forward has evaluated."""
        return (self.suffix_tokens - 1) * (self.beam_width - 1)

    @property
    def memorized(self) -> float:
        return self.windows * self.memorized_share

    @property
    def audited(self) -> float:
        """Windows of ordinary text that are searched to audit the screen."""
        ordinary = self.windows - self.memorized
        return min(ordinary, max(AUDIT_LEAST, AUDIT_SHARE * ordinary))


class Work(NamedTuple):
    """Forwards of one kind: how many, with how many tokens and rows of logits altogether."""

    forwards: float
    tokens: float
    rows: float
    windows: float
    """Windows that the host has work with."""


class Slots(NamedTuple):
    """Windows searched at once: chosen at first, and kept when memorized text has taken the memory it needs."""

    first: int
    steady: int


class Prediction(NamedTuple):
    """What a scan takes."""

    token_evals: float
    forwards: float
    gpus_per_model: int
    """GPUs that hold one copy of the model together (--tensor-parallel)."""
    copies: int
    """Copies of the model, each with a share of the windows (--shard, --executor ray)."""
    slots: int
    weights_bytes_per_gpu: int
    slots_bytes_per_gpu: int
    seconds: float
    """From the first window to the last, loading not counted."""

    @property
    def gpu_hours(self) -> float:
        return self.seconds * self.gpus_per_model * self.copies / 3600


def predict(scan: Scan, shape: ModelShape, *, gpus: int, costs: Costs, gpu_bytes: int = GPU_BYTES) -> Prediction:
    """The scan on `gpus` GPUs: as many copies of the model as fit, each on as few GPUs as hold it."""
    together = gpus_for_one(scan, shape, gpus=gpus, gpu_bytes=gpu_bytes)
    copies = gpus // together
    slots = slots_of(scan, shape, gpus=together, gpu_bytes=gpu_bytes)
    share = Scan(
        windows=math.ceil(scan.windows / copies),
        memorized_share=scan.memorized_share,
        prefix_tokens=scan.prefix_tokens,
        suffix_tokens=scan.suffix_tokens,
        beam_width=scan.beam_width,
    )
    work = work_of(share, slots=slots, costs=costs)
    everything = work_of(scan, slots=slots, costs=costs)
    return Prediction(
        token_evals=sum(part.tokens for part in everything),
        forwards=sum(part.forwards for part in everything),
        gpus_per_model=together,
        copies=copies,
        slots=slots.steady,
        weights_bytes_per_gpu=_weights(shape, together),
        slots_bytes_per_gpu=slots.steady * _peak_bytes(scan, shape, together),
        seconds=sum(seconds_of(part, shape, costs, gpus=together) for part in work),
    )


def work_of(scan: Scan, *, slots: "Slots", costs: Costs) -> tuple[Work, Work, Work]:
    """First forwards, greedy answers, and searches: of audited windows, and of memorized ones to full depth."""
    chunks = math.ceil(scan.windows / WINDOWS_PER_CHUNK)
    greedy = (scan.windows - scan.memorized) * min(costs.greedy_evals, scan.suffix_tokens)
    lost = LOST_SHARE * min(scan.memorized, slots.first) if slots.steady < slots.first else 0.0
    # What was measured with longer suffixes and wider beams can be more than a search to the end takes here.
    audited = scan.audited * min(costs.audited_evals, scan.memorized_evals)
    searched = (scan.memorized + lost) * scan.memorized_evals + audited
    deepest = scan.suffix_tokens - 1 if scan.memorized else min(STEPS_OF_ORDINARY_TEXT, scan.suffix_tokens - 1)
    steps = max(searched / (slots.steady * max(1, scan.beam_width - 1)), deepest)
    first = scan.windows * scan.first_tokens
    return (
        Work(math.ceil(scan.windows / WINDOWS_PER_FORWARD), first, scan.windows * scan.suffix_tokens, scan.windows),
        Work(chunks if greedy else 0, greedy, greedy, 0),
        Work(steps, searched, searched, 0),
    )


def seconds_of(work: Work, shape: ModelShape, costs: Costs, *, gpus: int = 1) -> float:
    """Forwards of one kind, on a model that `gpus` GPUs hold together."""
    layer = 2.0 * shape.layer_weights * work.tokens / gpus / costs.operations_per_second
    layer *= PLAIN_LAYERS if gpus > 1 else 1.0
    layers = shape.layers * (layer + work.forwards * costs.per_layer + _seconds_of_sums(work, shape, gpus))
    head = 2.0 * shape.head_weights * work.rows / costs.operations_per_second
    beside = work.rows * shape.vocabulary * costs.per_row_and_token + work.forwards * costs.per_forward
    return layers + head + beside + work.windows * costs.per_window


def _seconds_of_sums(work: Work, shape: ModelShape, gpus: int) -> float:
    """Two sums over GPUs in a layer, behind attention and behind the feed-forward."""
    moved = 2 * (gpus - 1) / gpus * 2 * shape.width * work.tokens
    return 2 * moved / LINK_BYTES_PER_SECOND


def gpus_for_one(scan: Scan, shape: ModelShape, *, gpus: int, gpu_bytes: int) -> int:
    """The fewest GPUs, a power of two, that hold the model and at least one slot."""
    count = 1
    while count <= gpus and shape.key_value_heads % count == 0:
        if _weights(shape, count) + _slot_bytes(scan, shape, count) <= USABLE_SHARE * gpu_bytes:
            return count
        count *= 2
    need = 2 ** math.ceil(math.log2(max(1.0, shape.weights_bytes / (USABLE_SHARE * gpu_bytes))))
    raise ConfigError(
        f"gpus is {gpus}, but the weights alone take {shape.weights_bytes / 2**30:,.0f} GiB; "
        f"give --gpus {need} or more; one model can be spread over {shape.key_value_heads} at most."
    )


def slots_of(scan: Scan, shape: ModelShape, *, gpus: int, gpu_bytes: int) -> Slots:
    """As `search/sizing.py` chooses them, which knows the model itself."""
    free = gpu_bytes - _weights(shape, gpus)
    chains = WINDOWS_PER_CHUNK * (scan.prefix_tokens + 2 * scan.suffix_tokens) * shape.bytes_per_entry // gpus
    free -= int(min(chains, CHUNK_SHARE * free))
    most, worst = QUERIES_PER_FORWARD // (scan.beam_width + 1), _worst_bytes(scan, shape, gpus)
    beside = (scan.beam_width + 1) * shape.vocabulary * LOGIT_BYTES
    at_worst = int(USABLE_SHARE * free) // (worst + beside)
    expected = int(USABLE_SHARE * free) // (_slot_bytes(scan, shape, gpus) + beside)
    first = steady = max(1, min(most, at_worst if at_worst >= LEAST_FILLED * most else expected))
    while steady > 1 and scan.memorized and steady * PEAK_SHARE * worst > free:
        steady = at_worst if steady // 2 < at_worst < steady else steady // 2
    return Slots(first, steady)


def _weights(shape: ModelShape, gpus: int) -> int:
    """Layers and embedding are shared; every GPU of several has all of the head besides."""
    return shape.weights_bytes // gpus + (2 * shape.head_weights if gpus > 1 else 0)


def _peak_bytes(scan: Scan, shape: ModelShape, gpus: int) -> int:
    """What a slot comes to take."""
    return int(PEAK_SHARE * _worst_bytes(scan, shape, gpus)) if scan.memorized else _slot_bytes(scan, shape, gpus)


def _worst_bytes(scan: Scan, shape: ModelShape, gpus: int) -> int:
    """A slot with every entry in use."""
    lanes = scan.beam_width + 1
    entries = scan.prefix_tokens + (lanes + 1) * max(scan.suffix_tokens - 1, 1) + lanes
    return entries * shape.bytes_per_entry // gpus


def _slot_bytes(scan: Scan, shape: ModelShape, gpus: int) -> int:
    """A slot as ordinary text uses it; of short windows, no more than all of it."""
    entries = scan.prefix_tokens + scan.suffix_tokens + ENTRIES_PER_LANE * (scan.beam_width + 1)
    return min(entries * shape.bytes_per_entry // gpus, _worst_bytes(scan, shape, gpus))
