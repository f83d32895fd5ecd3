"""The exhibit of an audit: what was found, from which prompt, beside what, and how to check it."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from byrote.corpus.read import Document
from byrote.errors import RunError, TextError
from byrote.longform.journal import Ceilings
from byrote.longform.options import INSTRUCTIONS
from byrote.longform.report import phase_1_tile, read, write_exhibit
from byrote.longform.run import AuditResult, check_audit, read_audit, run_audit
from byrote.models.responder import Request, RequestRejected
from byrote.report.figures.longform import similarity_by_tries
from byrote.report.terminal import show_content
from byrote.store import read as verify
from byrote.store.manifest import read_identity, read_manifest, write_manifest
from byrote.types import Split
from tests.longform.audits import CountingClock, InProcess, invented_book, make_run
from tests.loopback.brains import KnowsByHeart

HOSTILE = "</p><script>alert(1)</script><img/src=x> &amp; {{ 7 * 7 }} '\""
CONTROLS = tuple(
    Document.from_text(f"control-{n}.txt", invented_book(200, seed=50 + n), split=Split.CONTROL) for n in range(2)
)


class Page(HTMLParser):
    """The text of a page, and the text of the elements with each class or tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self._open: list[tuple[str, set[str], list[str]]] = []
        self.elements: list[tuple[str, set[str], str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.links += [values["href"]] if values.get("href") else []
        self.anchors |= {values["id"]} if values.get("id") else set()
        if tag not in ("meta", "br", "img"):
            self._open.append((tag, set((values.get("class") or "").split()), []))

    def handle_endtag(self, tag: str) -> None:
        name, classes, texts = self._open.pop()
        assert name == tag, f"</{tag}> closes <{name}>"
        self.elements.append((name, classes, "".join(texts)))

    def handle_data(self, data: str) -> None:
        self.text += data
        for _, _, texts in self._open:
            texts.append(data)

    def of_class(self, name: str) -> list[str]:
        return [text for _, classes, text in self.elements if name in classes]

    def of_tag(self, name: str) -> list[str]:
        return [text for tag, _, text in self.elements if tag == name]


def changed(book: str) -> str:
    """The book as a model may remember it: one word wrong, one left out, one added."""
    words = book.split()
    words[150] = "WRONG"
    del words[200]
    words.insert(250, "ADDED</ins><script>alert(2)</script>")
    return " ".join(words)


def audited(out: Path, *, book: str, knows: str, **arguments: Any) -> AuditResult:
    run = make_run(book, out, options=arguments.pop("options", {}), **arguments)
    return run_audit(run, InProcess(KnowsByHeart(knows)), sleep=CountingClock().sleep)


BOOK = invented_book(600).replace(" ", f" {HOSTILE} ", 1)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audit") / "run"
    audited(out, book=BOOK, knows=changed(BOOK), controls=CONTROLS)
    write_exhibit(out)
    return out


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audit") / "run"
    words = BOOK.split()
    run = make_run(BOOK, out)
    answer = " ".join([*words[25:33], "and something else", HOSTILE])
    run_audit(run, InProcess(lambda body: [answer]), sleep=CountingClock().sleep)
    write_exhibit(out)
    return out


def page_of(run: Path) -> Page:
    return Page(write_exhibit(run).page.read_text(encoding="utf-8"))


def test_the_page_says_what_was_reproduced_from_which_prompt_and_what_the_control_gave(found: Path) -> None:
    page, trial = page_of(found), read_audit(found).best
    (headline,) = page.of_tag("h1")
    assert "loopback-model gave back" in headline
    assert f"{100 * trial['nv_recall']:.1f}" in headline
    assert "book.txt" in headline
    assert "2\u00a0of\u00a02 control books failed phase 1." in page.text
    assert (
        "Measured against the control books, what the model wrote for this book has an nv-recall of 0\u00a0%"
        in page.text
    )
    instruction, prefix, then = page.of_class("said")
    assert INSTRUCTIONS["plain"] in instruction
    assert prefix.endswith(" ".join(BOOK.split()[:20]))
    assert "Continue." in then


def test_the_prompt_s_words_are_in_no_passage(found: Path) -> None:
    page = page_of(found)
    given = " ".join(BOOK.split()[5:20])
    assert not [text for text in (*page.of_class("book"), *page.of_class("answer")) if given in " ".join(text.split())]


def test_differences_are_marked_and_only_they(found: Path) -> None:
    page = page_of(found)
    legend, *marked = page.of_tag("ins")
    assert legend == "only in the answer"
    assert [text for text in marked if text == "WRONG"]
    assert [text for text in marked if text == "ADDED</ins><script>alert(2)</script>"]
    assert len(page.of_tag("del")) == 1 + 2, "the legend, the word replaced and the word left out"
    assert len(page.of_class("differs")) == 1 + 3, "the legend's key and three rows"


def test_links_lead_to_passages_listed_longest_first(found: Path) -> None:
    page = page_of(found)
    inside = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert inside <= page.anchors
    assert all(link.startswith("#") for link in page.links), "nothing outside is linked to"
    words = [int(text.replace("\u2009", "")) for text in page.of_tag("strong")]
    assert words == sorted(words, reverse=True)
    assert words[0] == read_audit(found).best["longest_block"]


@pytest.mark.parametrize("name", ["found", "failed"])
def test_whatever_stands_in_texts_is_shown_and_never_markup(name: str, request: pytest.FixtureRequest) -> None:
    content = (request.getfixturevalue(name) / "report" / "index.html").read_text(encoding="utf-8")
    page = Page(content)
    assert "script" not in page.tags
    assert "http" not in content.replace("http-equiv", "")
    assert HOSTILE in page.text
    assert "49" not in "".join(text for text in page.of_tag("ins"))


def test_a_failed_phase_1_has_a_page_with_the_closest_answer_beside_the_target(failed: Path) -> None:
    page = page_of(failed)
    assert page.of_tag("h1") == ["loopback-model did not go on with book.txt"]
    assert "had at most 40.0 % of the next 20 words in one run; 60.0 % were needed" in page.text.replace("\u00a0", " ")
    assert "8 of 20 target words in one run" in page.text
    assert [text for text in page.of_class("answer") if " ".join(BOOK.split()[25:33]) in text]
    assert "No control book was asked for" in page.text


def test_every_file_of_the_run_is_listed_with_its_hash(found: Path) -> None:
    page, audit = page_of(found), read_audit(found)
    for name, bound in audit.manifest["files"].items():
        assert name in page.text
        assert bound["sha256"] in page.text
    assert audit.manifest["journal"]["last_hash"] in page.text


def unpacked(run: Path, folder: Path) -> Path:
    with zipfile.ZipFile(run / "report" / "exhibit.zip") as bundle:
        bundle.extractall(folder)
    return folder / "exhibit"


@pytest.mark.parametrize("name", ["found", "failed"])
def test_the_bundle_checks_itself(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = unpacked(request.getfixturevalue(name), tmp_path)
    sums = [line.split("  ", 1) for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()]
    assert {file for _, file in sums} >= {"index.html", "journal.jsonl", "manifest.json", "book.txt", "findings.json"}
    for digest, file in sums:
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest
    lines = list(check_audit(verify.verify_run(folder)))
    assert lines[1] == "findings.json: every number follows from the journal and book.txt"


def test_the_same_audit_gives_the_same_bundle(found: Path, tmp_path: Path) -> None:
    first, second = (write_exhibit(found, tmp_path / name).others[0].read_bytes() for name in ("a", "b"))
    assert first == second
    assert {entry.external_attr >> 16 for entry in zipfile.ZipFile(io.BytesIO(first)).infolist()} == {0o600}


def test_verify_run_says_that_everything_fits(found: Path) -> None:
    lines = list(check_audit(verify.verify_run(found)))
    assert lines[0].startswith("journal.jsonl: ")
    assert lines[0].endswith("whole records, each bound to the one before")


def resealed(run: Path, name: str, content: bytes) -> None:
    """A forgery with right hashes: the file is changed and the manifest written anew."""
    (run / name).write_bytes(content)
    identity, manifest = read_identity(run / "identity.json"), read_manifest(run / "manifest.json")
    assert identity is not None
    assert manifest is not None
    files = [run / file for file in manifest.pop("files")]
    own = {key: value for key, value in manifest.items() if key not in ("byrote_run", "kind", "run_id")}
    write_manifest(run / "manifest.json", own, identity, files)


def forged_number(content: bytes) -> bytes:
    findings = json.loads(content)
    findings["trials"][0]["matched_words"] += 1
    return json.dumps(findings).encode()


@pytest.mark.parametrize(
    ("name", "forge", "message"),
    [
        ("findings.json", forged_number, "the trials in findings.json do not follow from the journal and the book"),
        ("book.txt", lambda content: content[:-20], "do not follow from the journal and the book"),
        ("generations/trial-000-section-000.txt", lambda content: content + b".", "is not what the journal's answers"),
        ("control-000.txt", lambda content: content + b" more", "the controls in findings.json do not follow"),
    ],
)
def test_a_forgery_with_right_hashes_is_found_by_working_it_out_again(
    found: Path, tmp_path: Path, name: str, forge: Any, message: str
) -> None:
    folder = unpacked(found, tmp_path)
    resealed(folder, name, forge((folder / name).read_bytes()))
    with pytest.raises(RunError, match=message):
        list(check_audit(verify.verify_run(folder)))


class RejectsLater(InProcess):
    """Takes three requests and no more."""

    def complete(self, request: Request, *, idempotency_key: str) -> Any:
        if len(self.sent) >= 3:
            raise RequestRejected("too long")
        return super().complete(request, idempotency_key=idempotency_key)


def ended_early(out: Path) -> Iterator[tuple[str, Path]]:
    run = make_run(BOOK, out / "ceiling", ceilings=Ceilings(max_requests=3), controls=CONTROLS)
    run_audit(run, InProcess(KnowsByHeart(BOOK)), sleep=CountingClock().sleep)
    yield "ceiling", run.out
    run = replace(make_run(BOOK, out / "rejected"), controls=CONTROLS)
    server = RejectsLater(KnowsByHeart(BOOK))
    with pytest.raises(RequestRejected):
        run_audit(run, server, sleep=CountingClock().sleep)
    run = make_run(BOOK, out / "rejected")
    run_audit(run, server, sleep=CountingClock().sleep)
    yield "rejected", run.out


def test_an_audit_that_ended_early_is_checked_like_any_other(tmp_path: Path) -> None:
    for stop, run in ended_early(tmp_path):
        assert read_audit(run).best["sections"][0]["stop"] == stop
        assert len(list(check_audit(verify.verify_run(run)))) == 2
    assert "A ceiling ended this audit" in page_of(tmp_path / "ceiling").text


def test_of_several_sections_the_tile_counts_those_that_passed_phase_1() -> None:
    """The best section alone would hide the others."""
    stops = [{"similarity": share, "stop": stop} for share, stop in ((1.0, "query_budget"), (0.1, "phase_1_failed"))]
    assert phase_1_tile(stops, 0.6)[1:] == ("1 of 2", "sections gave 60.0 % of the target in one run")
    assert phase_1_tile(stops[:1], 0.6).value == "100 %"


def test_numbers_in_the_terminal_have_commas(found: Path) -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    for part in show_content(read([found])):
        console.print(part)
    characters = read_audit(found).manifest["texts"]["book.txt"]["characters"]
    assert f"{characters:,} characters" in console.export_text()
    assert characters > 1000


def test_several_trials_are_listed_with_their_spread(tmp_path: Path) -> None:
    knows = KnowsByHeart(BOOK)
    calls: list[Mapping[str, Any]] = []

    def brain(body: Mapping[str, Any]) -> list[str]:
        calls.append(body)
        return knows(body) if len(calls) < 8 else ["THE END"] if len(calls) > 9 else knows(body)

    run = make_run(BOOK, tmp_path / "run", options={"repetitions": 3, "max_turns": 5})
    run_audit(run, InProcess(brain), sleep=CountingClock().sleep)
    (spread,) = read_audit(tmp_path / "run").findings["spread"]
    assert spread["trials"] == 3
    assert spread["least"] < spread["mean"] < spread["most"]
    page = page_of(tmp_path / "run")
    assert "over 3 trials" in page.text
    assert "trial 0, the one that recovered most of 3" in page.text


def test_a_control_may_be_added_to_a_finished_audit_but_not_the_book_itself(tmp_path: Path) -> None:
    server = InProcess(KnowsByHeart(BOOK))
    run = make_run(BOOK, tmp_path / "run")
    run_audit(run, server, sleep=CountingClock().sleep)
    asked = len(server.sent)
    result = run_audit(replace(run, controls=CONTROLS), server, sleep=CountingClock().sleep)
    assert len(server.sent) == asked + 2
    assert [control.asked.nv_recall for control in result.controls] == [None, None]
    book = Document.from_text("copy.txt", BOOK, split=Split.CONTROL)
    with pytest.raises(TextError, match=r"copy.txt is the book itself"):
        run_audit(replace(run, controls=(book,)), server)


def test_a_control_that_passes_phase_1_is_noticed(tmp_path: Path) -> None:
    control = CONTROLS[0]
    both = KnowsByHeart(f"{BOOK} {control.text}")
    run = make_run(BOOK, tmp_path / "run", controls=(control,), options={"max_turns": 3})
    run_audit(run, InProcess(both), sleep=CountingClock().sleep)
    assert "A control book passed phase 1." in page_of(tmp_path / "run").text


def test_an_audit_that_is_not_finished_or_none_is_refused(tmp_path: Path, found: Path) -> None:
    folder = unpacked(found, tmp_path)
    (folder / "manifest.json").unlink()
    with pytest.raises(RunError, match="is not finished; run its command again"):
        write_exhibit(folder)


def test_similarity_by_tries_shows_every_try_and_the_best_so_far() -> None:
    figure = similarity_by_tries([("a", (0.2, 0.1, 0.5, 0.3)), ("b", (0.0, 0.7))], threshold=0.6)
    (axes,) = figure.axes
    first, second = (line.get_ydata() for line in axes.lines[:2])
    assert list(first) == [0.2, 0.2, 0.5, 0.5]
    assert list(second) == [0.0, 0.7]
    assert [len(dots.get_offsets()) for dots in axes.collections] == [4, 2]
    assert axes.get_xscale() == "linear"
    assert similarity_by_tries([("a", (0.1,) * 60)], threshold=0.6).axes[0].get_xscale() == "log"
