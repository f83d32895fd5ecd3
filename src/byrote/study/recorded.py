"""A study over prior runs or audits: the numbers of a cell, and what its page has of all cells."""

from collections.abc import Mapping

from byrote.longform.run import read_audit
from byrote.prior import report as prior_report
from byrote.report.content import Content
from byrote.study.run import RecordedCell, StudyView
from byrote.types import Split


def numbers_of(one: RecordedCell, measurement: str, split: Split) -> Mapping[str, float | None]:
    """Measure → number, as published numbers name them. Of several trials, those of the one that recovered most."""
    if measurement == "prior":
        side = one.manifest["totals"]["by_split"].get(split)
        if side is None:
            return {}
        counts, by_point = side["all"], side["all"]["by_point_estimates"]
        found = {"prior_aware": by_point["memorized"], "common": by_point["merely_likely"]}
        return found | {name: counts[name] for name in ("suffixes", "extractable")}
    if split is not Split.TARGET:
        return {}
    trial, costs = read_audit(one.path).best, one.manifest["costs"]
    tries = max((section["tries"] for section in trial["sections"]), key=lambda own: max(own, default=0.0))
    numbers = {name: trial[name] for name in ("book_words", "matched_words", "nv_recall", "longest_block")}
    return numbers | {
        "similarity": max(tries, default=None),
        "instruction": tries.index(max(tries)) if tries else None,
        "generated_words": sum(section["generation_words"] for section in trial["sections"]),
        "requests": sum(section["turns"] - section["empty_answers"] for section in trial["sections"]),
        "cost": costs["cost_with_cache"],
        "cost_with_assumed_cache": costs["cost_with_assumed_cache"],
    }


def compared(study: StudyView) -> Content:
    """What the cells' own reports show of several such runs."""
    paths = [one.path for one in study.recorded]
    if study.measurement == "prior":
        return prior_report.read(paths)
    from byrote.longform.report import read  # needs matplotlib, which the terminal does not

    return read(paths)
