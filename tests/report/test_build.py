"""The report folder: what is written, what it says, what it refuses."""

import base64
import csv
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from byrote.errors import ConfigError, RunError, StorageError
from byrote.report.analysis.comparison import compare_runs
from byrote.report.content import Written
from byrote.report.page import GLOSSARY, write_page
from byrote.report.view import RunView, load_view, with_distinct_labels
from byrote.run_kinds import write_report
from byrote.scan.report import draw_all, read
from tests.report.pages import page_of
from tests.report.synthetic_run import Book, books, prose, write_run

HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'


class Tags(HTMLParser):
    """Collects start tags with attributes, and ids and local links."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def tags_of(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(page)
    return parser.tags


def figures_of(report: Written) -> set[str]:
    return {path.name for path in report.others if path.parent.name == "figures"}


def test_report_has_page_figures_tables_and_card(report: Written) -> None:
    assert report.page.name == "index.html"
    names = {path.name for path in report.others}
    wanted = [
        "rates-by-edits",
        "queries",
        "mass",
        "mass-gain",
        "shells",
        "shell-violins",
        "book-1",
        "copies",
        "ranks",
        "copies-queries",
    ]
    for name in wanted:
        assert {f"{name}.{kind}" for kind in ("svg", "png", "pdf")} <= names
        # Violins are outlines of what the rows of the run hold.
        assert name == "shell-violins" or f"{name}.csv" in names
    rest = {path.name for path in report.others if path.parent.name != "figures"}
    assert rest == {"rates.csv", "documents.csv", "copies.csv", "sets.csv", "risk.csv", "model_card.md"}
    assert all(path.stat().st_size > 0 for path in (report.page, *report.others))


def test_figures_keep_text_as_text(report: Written) -> None:
    svg = (report.page.parent / "figures" / "rates-by-edits.svg").read_text()
    assert re.search(r"<text[^>]*>edits allowed, ε</text>", svg)


def test_page_asks_the_network_for_nothing(report: Written) -> None:
    for tag, attributes in tags_of(report.page.read_text()):
        for name in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(name) or ""
            assert value.startswith(("#", "data:")) or not value, f"<{tag} {name}={value[:60]}>"


def test_every_link_to_a_definition_has_its_definition(report: Written) -> None:
    tags = tags_of(report.page.read_text())
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"][1:] for tag, attributes in tags if tag == "a" and attributes.get("href")}
    assert links <= set(ids)
    assert len({link for link in links if link.startswith("def-")}) > 10
    script = report.page.read_text().rsplit("<script>", 1)[1]
    linked = set(re.findall(r'linked\("([a-z-]+)"', script))
    assert linked
    assert linked <= {entry.anchor for entry in GLOSSARY}


def test_security_policy_names_exactly_the_script_of_the_page(report: Written) -> None:
    page = report.page.read_text()
    script = page.rsplit("<script>", 1)[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_summary_says_rates_of_both_sides_with_intervals(report: Written) -> None:
    page = report.page.read_text()
    with (report.page.parent / "tables" / "rates.csv").open() as file:
        rows = {(row["split"], row["criterion"], row["edits"]): row for row in csv.DictReader(file)}
    near = rows[("target", "near", "5")]
    share = f"{100 * float(near['rate']):.1f} %"
    summary = page.split('id="text"')[0].replace("\u00a0", " ")
    assert f"can be made to reproduce {share} of the target passages" in summary
    assert f"{100 * float(near['interval_low']):.1f} % to {100 * float(near['interval_high']):.1f} %" in summary
    assert "None of the control passages is certified." in summary


def test_markup_in_names_texts_and_manifest_is_text(tmp_path: Path) -> None:
    book = Book(f"{HOSTILE}.txt", HOSTILE + prose(1, 1500) + "</script>")
    run = write_run(tmp_path / "run", [book], model=HOSTILE, stride=100)
    hostile = load_view(run)
    page = page_of(hostile)
    assert "<img src=x" not in page
    assert "window.hacked=1</script>" not in page
    assert all("onerror" not in attributes for _, attributes in tags_of(page))
    scripts = [attributes for tag, attributes in tags_of(page) if tag == "script"]
    assert [attributes for attributes in scripts if not attributes.get("type")] == [{}]


def test_no_line_of_the_table_of_documents_breaks_before_a_percent_sign(tmp_path: Path) -> None:
    table = page_of(load_view(write_run(tmp_path / "run", books(3000), stride=100))).split('class="documents"')[1]
    cells = re.findall(r'<td class="number">([^<]*%[^<]*)</td>', table.split("</table>")[0])
    assert cells
    assert not [cell for cell in cells if " %" in cell]


def test_runs_over_the_same_windows_are_compared(tmp_path: Path) -> None:
    documents = books(3000)
    first = write_run(tmp_path / "small", documents, seed=1, stride=100, model="small")
    second = write_run(tmp_path / "large", documents, seed=2, stride=100, model="large")
    report = write_page([read([first, second])], tmp_path / "out")
    page = report.page.read_text()
    assert "All runs measured the same" in page
    assert re.search(r"<h1>Target passages that come out .* from small and .* from large", page)
    drawn = figures_of(report)
    assert {"verbatim-share-by-model.svg", "rates-by-model.svg"} <= drawn
    table = pl.read_csv(tmp_path / "out" / "tables" / "rates.csv")
    assert set(table["run"]) == {"small", "large"}


def test_a_second_report_leaves_no_figure_of_the_first_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    (out / "figures" / "my-own.png").write_text("old")
    bare = write_run(tmp_path / "bare", books(1200)[:1], stride=200, measures=("verbatim",))
    run = write_run(tmp_path / "run", books(1200)[:1], stride=200)
    assert "mass.svg" in figures_of(write_page([read([run])], out))
    report = write_page([read([bare])], out)
    assert "mass.svg" not in figures_of(report)
    assert {path.name for path in (out / "figures").iterdir()} - figures_of(report) == {"my-own.png"}


def test_runs_over_other_windows_stand_side_by_side_and_the_page_says_so(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", books(3000), stride=100, model="m")
    second = write_run(tmp_path / "b", books(3000), stride=150, model="m")
    views = with_distinct_labels([load_view(first), load_view(second)])
    comparison = compare_runs(views)
    assert "The windows of m (b) are not those of m (a)" in page_of(*views)
    # What each model adds is of the same windows or of none.
    assert "windows-by-model" not in {drawing.name for drawing in draw_all(views, comparison)}


def test_labels_of_equal_models_and_folders_are_numbered(view: RunView) -> None:
    labels = [each.label for each in with_distinct_labels([view, view])]
    assert len(set(labels)) == 2


def test_a_verbatim_only_run_gets_a_page_without_near_verbatim_claims(tmp_path: Path) -> None:
    bare = load_view(write_run(tmp_path / "run", books(3000), stride=100, measures=("verbatim",)))
    summary = page_of(bare).split('id="text"')[0]
    assert "target passages, word for word" in summary
    assert "Near-verbatim" not in summary
    drawn = {drawing.name for drawing in draw_all([bare], None)}
    assert drawn >= {"queries", "book-1"}
    assert drawn.isdisjoint({"rates-by-edits", "mass"})


def test_short_documents_share_one_heat_map(tmp_path: Path) -> None:
    short = [Book(f"note-{index}.txt", prose(index, 500), copies=index) for index in range(5)]
    view = load_view(write_run(tmp_path / "run", short, stride=50))
    drawings = {drawing.name: drawing for drawing in draw_all([view], None)}
    assert "book-1" not in drawings
    strip = drawings["texts"].figure.axes[0].images[0]
    assert strip.get_extent()[1] == 2500
    assert "most copies in training first" in drawings["texts"].caption


def test_documents_stand_in_order_of_copies_with_other_editions_and_controls_last(tmp_path: Path) -> None:
    written = [
        Book("a.txt", prose(1, 500), copies=1),
        Book("b.txt", prose(2, 500), copies=8),
        Book("c.txt", prose(3, 500), split="control"),
        Book("d.txt", prose(4, 500), copies=64, kind="edition"),
    ]
    view = load_view(write_run(tmp_path / "run", written, stride=50))
    assert [document.name for document in view.documents] == ["b.txt", "a.txt", "d.txt", "c.txt"]
    assert [document.copies for document in view.documents] == [8, 1, 64, 0]
    assert [document.name for document in view.documents if document.is_other_edition] == ["d.txt"]
    for document in view.documents:
        assert set(view.population.document[view.rows_of(document)]) == {document.name}


def test_a_run_without_texts_still_gets_a_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", books(3000), stride=100, with_texts=False)
    page = page_of(load_view(run))
    data = json.loads(page.split('id="byrote-data">')[1].split("</script>")[0])
    assert data["texts"] == []
    assert {entry["text"] for entry in data["runs"][0]["documents"]} == {None}


def test_reports_are_the_same_byte_for_byte(view: RunView) -> None:
    assert page_of(view) == page_of(view)


def test_no_run_an_empty_folder_and_an_unwritable_place_are_refused(tmp_path: Path, run_folder: Path) -> None:
    with pytest.raises(ConfigError, match="No run was given"):
        write_report([], tmp_path)
    with pytest.raises(RunError):
        write_report([tmp_path], tmp_path / "out")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StorageError, match="Cannot write the report"):
        write_report([run_folder], blocked)


def test_an_unfinished_run_is_reported_as_unfinished(tmp_path: Path) -> None:
    unfinished = load_view(write_run(tmp_path / "run", books(3000), stride=100, is_complete=False))
    assert not unfinished.is_complete
    assert "the run is not finished" in page_of(unfinished)
