"""Which of all windows a run measured, in words: page, terminal and model card say the same."""

from collections.abc import Mapping

from rote.report.view import RunView
from rote.report.words import integer, plural

MANNERS = {"limit": "the first of every document", "sample": "sampled"}


def is_selection(view: RunView) -> bool:
    """Whether the run measured a part of the windows its texts have."""
    totals = view.manifest.get("totals")
    chosen = totals.get("selection") if isinstance(totals, Mapping) else None
    return isinstance(chosen, Mapping) and chosen["kind"] != "all"


def selection_words(view: RunView) -> str:
    """`911 windows`, or `60 of 911 windows, sampled, seed 0 (30 of 700 target, 30 of 211 control)`.

    Windows are counted by the places where one may begin, so the few that come out short are among the 911.
    """
    measured = len(view.population)
    totals = view.manifest.get("totals")
    chosen = totals.get("selection") if isinstance(totals, Mapping) else None
    if not isinstance(chosen, Mapping) or chosen["kind"] == "all":
        return plural(measured, "window")
    starts: Mapping[str, int] = chosen["starts"]
    seed = f", seed {chosen['seed']}" if chosen["kind"] == "sample" else ""
    words = f"{integer(measured)} of {plural(sum(starts.values()), 'window')}, {MANNERS[chosen['kind']]}{seed}"
    if len(starts) < 2:
        return words
    controls = int(view.population.is_control.sum())
    taken = {"target": measured - controls, "control": controls}
    parts = ", ".join(f"{integer(taken[split])} of {integer(count)} {split}" for split, count in starts.items())
    return f"{words} ({parts})"
