"""What an engine lends its stream, and what both count."""

from dataclasses import dataclass, field

from torch import Tensor

from rote.distance import Viability
from rote.models.base import TreeModel
from rote.search.base import Limits, SearchOptions


@dataclass(slots=True)
class Counters:
    """What an engine did so far, for benches and for whoever asks about memory."""

    forwards: int = 0
    wrong_guesses: int = 0
    """Forwards that nobody had a use for (`rote.search.forwards`)."""
    peak_entries: int = 0
    session_entries: int = 0


@dataclass(frozen=True, slots=True)
class Setup:
    """What an engine lends its stream."""

    model: TreeModel
    options: SearchOptions
    limits: Limits
    viability: Viability
    eos_ids: Tensor
    children: int
    """Width of the policy: children a beam can have."""
    counters: Counters = field(default_factory=Counters)
