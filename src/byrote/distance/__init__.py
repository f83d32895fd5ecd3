"""Edit distances over tokens as viability rules: which partial continuations can still end within the budget."""

from byrote.distance.base import Advanced, Viability
from byrote.distance.tokens import Hamming, Levenshtein, Unconstrained
from byrote.types import DistanceName, ViabilityName

__all__ = ["Advanced", "Viability", "make_viability"]


def make_viability(distance: DistanceName, *, budget: int, rule: ViabilityName) -> Viability:
    """The viability rule of a distance at a budget."""
    if distance == "hamming":
        return Hamming(budget)
    if distance == "levenshtein":
        return Levenshtein(budget, rule=rule)
    return Unconstrained(budget)
