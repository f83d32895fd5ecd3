"""How a study is shown: cells side by side, published numbers beside its own, pairs of cells on the same windows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from byrote.errors import RunError
from byrote.longform.run import read_audit
from byrote.prior import report as prior_report
from byrote.progress import duration
from byrote.report.analysis.comparison import compare_runs, set_rows
from byrote.report.analysis.limits import limit_of
from byrote.report.analysis.queries import curve_at, own_policy, policies_of, policy_rates
from byrote.report.analysis.rates import Criterion, rate_for, split_rows
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Rows, Section, of_manifests
from byrote.report.summary import documents_words
from byrote.report.view import model_name
from byrote.report.words import integer, interval_words, listed, percent, plural, share_words
from byrote.stats.compare import Comparison
from byrote.study.compare import PairedCells, paired_cells
from byrote.study.published import CellSide, read_measure, read_recorded
from byrote.study.run import MeasuredCell, RecordedCell, StudyView, read_study
from byrote.types import Split

QUERIES = (1.0, 100.0, 10_000.0)


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    (path,) = paths
    return study_content(read_study(path))


def study_content(study: StudyView) -> Content:
    swept = [f"{axis.name.replace('_', ' ')} ({len(axis.values)})" for axis in study.swept]
    finished = len(study.cells) + len(study.recorded)
    missing = study.planned - finished
    if not finished:
        raise RunError(f"{study.path} has no finished cell yet; run the study again to go on.")
    manifests = [*(one.view.manifest for one in study.cells), *(one.manifest for one in study.recorded)]
    common = Content(
        kind="study",
        label=study.path.name,
        headline=study.config.about or f"A study of {plural(study.planned, 'cell')} over {listed(swept) or 'no axis'}",
        facts=(
            ("models", listed(list(dict.fromkeys(model_name(one) or "unnamed" for one in manifests)), most=9)),
            *((f"{split} texts", documents_words(names)) for split in Split if (names := _texts(study, split))),
            ("cells", f"{finished} of {study.planned}"),
            ("axes", listed(swept, most=9)),
        ),
        notices=(
            *((f"{plural(missing, 'cell')} not measured yet; run the study again to go on.",) if missing else ()),
            *(
                f"Changed on the command line: {words}. Published numbers are of other settings."
                for words in study.config.changed
            ),
        ),
        **({} if study.manifest is None else of_manifests([(study.path.name, study.manifest)])),
    )
    if study.recorded:
        paths = [one.path for one in study.recorded]
        if study.measurement == "prior":
            found = prior_report.read(paths)
        else:
            from byrote.longform.report import read as read_audits  # needs matplotlib, which the terminal does not

            found = read_audits(paths)
        tables = (costs_table(study), *published_cells(study), *found.tables)
        return replace(common, tables=tables, sentences=found.sentences, draw=found.draw)
    pairs = paired_cells(study)
    tables = (cells_table(study), *published_cells(study), *pairs_table(study, pairs), *policies_table(study))
    shown = {table.name: [dict(zip(table.heads, row, strict=True)) for row in table.rows] for table in tables}
    return replace(
        common,
        tables=tables,
        sentences=pairing_sentences(study, pairs),
        draw=lambda: _draw(study),
        data=lambda: shown | {"sets": sets_of_cells(study)},
    )


def _texts(study: StudyView, split: Split) -> list[str]:
    """Of all cells, in their order."""
    documents = (document for one in study.cells for document in one.view.documents if document.split == split)
    return list(dict.fromkeys(document.name for document in documents))


def _draw(study: StudyView) -> Iterator[Drawing]:
    from byrote.study.panels import study_drawings  # needs matplotlib, which the terminal does not

    return study_drawings(study)


def published_cells(study: StudyView) -> list[Cells]:
    """One row a published number, those with a counterpart here first; empty cells where nothing here measures it."""
    if not study.config.published:
        return []
    sides = {split: cell_sides(study, split) for split in Split}
    recorded = {
        split: {one.cell.name: numbers_of(one, study.measurement, split) for one in study.recorded} for split in Split
    }
    rows = []
    for one in study.config.published:
        own = [
            cell.cell.name
            for cell in study.cells or study.recorded
            if all(cell.cell.settings.get(axis) == value for axis, value in one.settings.items())
        ]
        here = interval = ""
        if len(own) == 1:
            split = Split(one.split)
            reading = (
                read_recorded(recorded[split][own[0]], one)
                if study.recorded
                else read_measure(sides[split][own[0]], one)
            )
            if reading is not None:
                here = one.words(reading.value)
                interval = "" if reading.rate is None else interval_words(reading.rate.interval)
        place = (one.about or one.where or "all") + (", control" if one.split == "control" else "")
        rows.append((place, one.quantity, one.measure_words, one.words(one.value), here, interval, one.source))
    rows.sort(key=lambda row: not row[4])
    heads = ("published for", "quantity", "compared with", "published", "here", "95 % interval of the share", "source")
    note = "An empty cell: no cell of this study, or more than one, measures that number."
    return [Cells("published", "Published numbers and these", heads, tuple(rows), note)]


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


def cell_sides(study: StudyView, split: Split) -> dict[str, CellSide]:
    """Cell → its windows of this side, with those of the cells that differ from it in the model alone."""
    sides: dict[str, CellSide] = {}
    for one in study.cells:
        rows = split_rows(one.view.population, split)
        sides[one.cell.name] = CellSide(
            one.view.population.select(rows),
            one.view.results.filter(pl.Series(rows)),
            one.view.threshold,
            study.sampled.get(one.cell.name, ()),
        )
    return {
        one.cell.name: replace(sides[one.cell.name], family=[sides[each.cell.name] for each in family], place=place)
        for family in families(study)
        for place, one in enumerate(family)
    }


def families(study: StudyView) -> list[list[MeasuredCell]]:
    """Cells that differ in the model alone, together."""
    found: dict[tuple[str, ...], list[MeasuredCell]] = {}
    for one in study.cells:
        others = tuple(value for name, value in one.cell.settings.items() if name != "model")
        found.setdefault(others, []).append(one)
    return list(found.values())


def sets_of_cells(study: StudyView) -> Rows:
    """sets.csv: of every cell, and across the models of a family where their windows are the same."""
    views = [[replace(one.view, label=study.label_of(one.cell)) for one in family] for family in families(study)]
    return [row for own in views for row in set_rows(own, compare_runs(own).aligned if len(own) > 1 else None)]


def cells_table(study: StudyView) -> Cells:
    """Every finished cell with its rates and its cost."""
    rates = ("greedy", "word for word", "nearly, at least", "nearly, at most")
    heads = ("cell", "windows", *rates, "evals a window", "wall clock")
    rows = [
        (
            study.label_of(one.cell),
            integer(int(split_rows(one.view.population, Split.TARGET).sum())),
            _share(one, Criterion.GREEDY, 0),
            _share(one, Criterion.VERBATIM, None),
            _share(one, Criterion.NEAR, one.view.population.edit_budget),
            "–" if (limit := limit_of(one.view)) is None or not limit.says_something else percent(limit.high),
            integer(round(one.evaluations)),
            _wall_clock(one.view.manifest["timings"]),
        )
        for one in study.cells
    ]
    note = "At most: at 95 % confidence, from bounds and sampled answers; – where these say nothing."
    return Cells("cells", "Every cell: target windows, with 95 % intervals", heads, tuple(rows), note)


def costs_table(study: StudyView) -> Cells:
    """Every prior run or audit and what it took."""
    unit = "token_evals" if study.measurement == "prior" else "requests"
    rows = [
        (study.label_of(one.cell), integer(one.manifest["totals"][unit]), _wall_clock(one.manifest["timings"]))
        for one in study.recorded
    ]
    return Cells("cells", "Every cell", ("cell", unit.replace("token_evals", "token evaluations"), "wall clock"),
                 tuple(rows))  # fmt: skip


def _wall_clock(timings: Mapping[str, float]) -> str:
    """Of measuring, without loading the model; of a cell that was resumed only its last part is known."""
    return ("more than " if timings.get("windows_resumed") else "") + duration(timings["measuring_seconds"])


def _share(one: MeasuredCell, criterion: Criterion, edits: int | None) -> str:
    entry = rate_for(one.rates, criterion, split=Split.TARGET, edits=edits)
    return "–" if entry is None else share_words(entry.rate)


def pairs_table(study: StudyView, pairs: Sequence[PairedCells]) -> list[Cells]:
    """What changing one setting changes, on the windows that both cells have."""
    heads = ("change", "all else", "pairs", "unpaired", "word for word, points", "nearly, points")
    rows = [
        (
            " → ".join(pair.axis.label_of(each.cell.settings[pair.axis.name]) for each in (pair.first, pair.second)),
            study.label_of(pair.first.cell, without=(pair.axis.name,)),
            integer(len(pair.pairing.first)),
            percent(pair.pairing.unpaired_share),
            _difference(pair.verbatim),
            _difference(pair.near),
        )
        for pair in pairs
    ]
    note = (
        f"Windows are pairs where their targets share at least {study.config.overlap:g} of the characters of either; "
        "differences in percentage points with 95 % intervals over documents (about other texts like these) or, of "
        "fewer than ten, over long stretches (about other passages of these texts); no interval where they all differ "
        "by the same amount or are fewer than two."
    )
    return [Cells("pairs", "One setting changed, on the same windows", heads, tuple(rows), note)] if rows else []


def _difference(found: Comparison | None) -> str:
    if found is None:
        return "–"
    words = f"{100 * found.difference:+.1f}"
    interval = found.interval
    if not interval.is_defined:
        return f"{words} (no interval)"
    return f"{words} ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"


def policies_table(study: StudyView) -> list[Cells]:
    """(n, p) of every policy: those with cells of their own, and those of the sweep."""
    rows = []
    has_policy_axis = any(axis.name == "policy" for axis in study.swept)
    chosen = study.cells if has_policy_axis else study.base()
    for one in chosen:
        for each in policy_rates(one.view, QUERIES, policies_of(one.view) or own_policy(one.view)):
            if each.split is Split.TARGET:
                shares = map(share_words, curve_at(each.curves, 0.5).rates)
                rows.append((study.label_of(one.cell), each.policy, *shares))
    heads = ("cell", "policy", *(f"n = {n:,.0f}, p = 0.5" for n in QUERIES))
    title = "Every policy: windows that come out word for word within n queries with probability p"
    return [Cells("policies", title, heads, tuple(rows))] if has_policy_axis or len(rows) > len(chosen) else []


def pairing_sentences(study: StudyView, pairs: Sequence[PairedCells]) -> tuple[str, ...]:
    """How many windows have no partner, and how well the partners coincide."""
    if not pairs:
        return ()
    alone = sum(pair.pairing.unpaired_first + pair.pairing.unpaired_second for pair in pairs)
    together = sum(len(pair.pairing.first) for pair in pairs)
    worst = max(pairs, key=lambda pair: pair.pairing.unpaired_share)
    mean = sum(pair.pairing.overlap.sum() for pair in pairs) / (together or float("nan"))
    names = " and ".join(study.label_of(each.cell) for each in (worst.first, worst.second))
    every = alone + 2 * together
    paired = (
        "Windows are compared by where their targets stand in the text, also across tokenizers and prefix lengths: "
        f"{percent(2 * together / (every or float('nan')))} of the windows in these comparisons are paired, and "
        f"{integer(together)} pairs share {percent(mean)} of their characters on average (of different lengths: their "
        "first character)."
    )
    if not alone:
        return (paired,)
    unpaired = (
        f"{integer(alone)} of {integer(every)} windows ({percent(alone / every)}) could not be paired; most in {names} "
        f"({percent(worst.pairing.unpaired_share)}). They are in the rates of their own cells and in no difference."
    )
    return paired, unpaired


SECTION = Section(read, is_compared=False)
