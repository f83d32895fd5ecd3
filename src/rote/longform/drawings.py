"""The figures of audits and of single measurements."""

from collections.abc import Iterator, Mapping
from typing import Any

from matplotlib.figure import Figure

from rote.longform.audit_folder import AuditFolder
from rote.report.drawing import Drawing
from rote.report.figures.longform import (
    Likeness,
    MatchBlock,
    Recall,
    Tries,
    block_map,
    null_distribution,
    recall_bars,
    similarity_by_tries,
    word_counts,
)


def audit_drawings(audit: AuditFolder) -> Iterator[Drawing]:
    """The map of the best trial for papers; on the page, what several trials, tries or controls add."""
    best = audit.best
    for number, section in enumerate(best["sections"]):
        if section["recall"] is not None:
            yield Drawing(
                f"map-{number + 1}",
                "Where the passages stand in book and answer.",
                map_of(section["recall"]),
                is_wide=True,
            )
    trials = [(f"trial {trial['trial']}", trial) for trial in audit.trials]
    controls = [(f"control: {control['name']}", control["asked"]) for control in audit.findings["controls"]]
    asked = [*trials, *controls]
    recalls = [recall_of(label, trial) for label, trial in trials]
    recalls += [recall_of(label, control, is_control=True) for label, control in controls]
    if len(recalls) > 1 and any(one.matched for one in recalls):
        caption = "nv-recall of every trial and control; where phase 1 failed nothing was measured."
        yield Drawing("nv-recall", caption, recall_bars(recalls))
    answered = [one for one in recalls if one.generated_words]
    if len(answered) > 1:
        yield Drawing("words", "Words matched, missing and added.", word_counts(answered))
    null = [
        Likeness(measure["nv_recall"], measure["longest_run"])
        for control in audit.findings["controls"]
        for measure in control["null"]
    ]
    if null:
        found = [Likeness(trial["nv_recall"] or 0.0, trial["longest_block"]) for trial in audit.trials]
        caption = "The answers measured against control books, beside what they have of this book."
        yield Drawing("null-distribution", caption, null_distribution(null, found))
    tries = [
        Tries(f"{label}, {section['name']}", tuple(section["tries"]))
        for label, trial in asked
        for section in trial["sections"]
        if len(section["tries"]) > 1
    ]
    if tries:
        threshold = audit.manifest["config"]["similarity"]
        caption = (
            "The best share of the target found after so many tries of phase 1; the line is what it takes to go on."
        )
        yield Drawing("similarity-by-tries", caption, similarity_by_tries(tries, threshold=threshold))


def map_of(recall: Mapping[str, Any]) -> Figure:
    """Book above, answer below, from the record of a measurement."""
    blocks = [
        MatchBlock(
            block["book_word_start"],
            block["book_word_end"],
            block["generation_word_start"],
            block["generation_word_end"],
        )
        for block in recall["blocks"]
    ]
    return block_map(blocks, book_words=recall["book_words"], generated_words=recall["generation_words"])


def recall_of(label: str, trial: Mapping[str, Any], *, is_control: bool = False) -> Recall:
    generated = sum(section["recall"]["generation_words"] for section in trial["sections"] if section["recall"])
    return Recall(label, trial["matched_words"], trial["book_words"], generated, trial["longest_block"], is_control)
