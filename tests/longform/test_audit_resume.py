"""A killed audit goes on where it was: at whatever point it was killed nothing is lost, nothing is paid for twice."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from byrote.errors import BudgetError, RunError
from byrote.longform.journal import AuditJournal, Ceilings
from byrote.longform.run import AuditResult, AuditRun, run_audit
from byrote.store.journal import read_records
from tests.longform.audits import CountingClock, InProcess, audit, invented_book, make_run
from tests.loopback.brains import KnowsByHeart
from tests.loopback.server import LoopbackServer

BOOK = invented_book(260)
# Phase 1, three turns of 60 words that end the book, and THE END: five requests, two journal lines each.
REQUESTS = 6
LINES = 2 * REQUESTS
UNLIMITED_TOKENS = 1285


class Killed(BaseException):
    """Not an Exception: nothing on the way may catch it, as nothing can catch a kill."""


def kill_at_line(monkeypatch: pytest.MonkeyPatch, line: int, how: str) -> None:
    """The process dies when it is about to write, is in the middle of, or has just written the line."""
    append = AuditJournal.append
    count = 0

    def appended(self: AuditJournal, record: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        if count != line:
            append(self, record)
            return
        if how == "torn":
            os.write(self._descriptor, json.dumps(record).encode()[:20])
        if how == "after":
            append(self, record)
        raise Killed

    monkeypatch.setattr(AuditJournal, "append", appended)


def run_in_process(run: AuditRun, responder: InProcess) -> AuditResult:
    return run_audit(run, responder, sleep=CountingClock().sleep)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    result = run_in_process(make_run(BOOK, tmp_path_factory.mktemp("whole") / "run"), InProcess(KnowsByHeart(BOOK)))
    assert result.requests == REQUESTS
    paid = result.costs["paid_tokens"]
    assert paid["prompt_tokens"] + paid["completion_tokens"] == UNLIMITED_TOKENS
    return result


@pytest.mark.parametrize("how", ["before", "torn", "after"])
@pytest.mark.parametrize("line", range(1, LINES + 1))
def test_killed_at_any_point_of_the_journal(tmp_path: Path, uninterrupted: AuditResult, line: int, how: str) -> None:
    run, server = make_run(BOOK, tmp_path / "run"), InProcess(KnowsByHeart(BOOK))
    with pytest.MonkeyPatch.context() as patch:
        kill_at_line(patch, line, how)
        with pytest.raises(Killed):
            run_in_process(run, server)
    sent_before = len(server.sent)
    result = run_in_process(run, server)
    assert result.trials == uninterrupted.trials
    assert result.costs["paid_tokens"] == uninterrupted.costs["paid_tokens"]
    assert len(server.billed) == REQUESTS, "every request was worked on exactly once"
    is_answer_lost = line % 2 == 0 and how != "after"
    is_intent_unanswered = is_answer_lost or (line % 2 == 1 and how == "after")
    assert len(server.sent) == REQUESTS + is_answer_lost, "only a request whose answer was lost is sent again"
    assert result.sent == len(server.sent) - sent_before
    possibly = result.costs["possibly_paid_tokens"]["completion_tokens"]
    assert (possibly > 0) is is_intent_unanswered, "what may have been paid without an answer is reckoned with"


def test_an_audit_killed_after_every_answer_still_finishes(tmp_path: Path, uninterrupted: AuditResult) -> None:
    run, server = make_run(BOOK, tmp_path / "run"), InProcess(KnowsByHeart(BOOK))
    for _ in range(REQUESTS):
        with pytest.MonkeyPatch.context() as patch:
            kill_at_line(patch, 2, "after")
            with pytest.raises(Killed):
                run_in_process(run, server)
    result = run_in_process(run, server)
    assert result.sent == 0
    assert len(server.sent) == REQUESTS
    assert result.trials == uninterrupted.trials


@pytest.mark.parametrize("how", ["before", "torn", "after"])
@pytest.mark.parametrize("line", [2, 5, 8])
@pytest.mark.parametrize("ceiling", [500, 900])
def test_a_ceiling_holds_across_kills(tmp_path: Path, line: int, how: str, ceiling: int) -> None:
    run = make_run(BOOK, tmp_path / "run", ceilings=Ceilings(max_tokens_total=ceiling))
    server = InProcess(KnowsByHeart(BOOK))
    with pytest.MonkeyPatch.context() as patch:
        kill_at_line(patch, line, how)
        with suppress(Killed):
            run_in_process(run, server)
    # What may have been paid can leave no room for a first answer; then the resumed run says so and sends nothing.
    with suppress(BudgetError):
        run_in_process(run, server)
    assert 0 < server.billed_tokens <= ceiling < UNLIMITED_TOKENS


def test_the_journal_survives_a_cut_line_and_stays_readable(tmp_path: Path) -> None:
    run, server = make_run(BOOK, tmp_path / "run"), InProcess(KnowsByHeart(BOOK))
    run_in_process(run, server)
    path = tmp_path / "run" / "journal.jsonl"
    whole = path.read_bytes()
    # As a kill leaves it: the last line cut, and no manifest yet.
    (tmp_path / "run" / "manifest.json").unlink()
    path.write_bytes(whole[:-30])
    assert len(list(read_records(path))) == LINES - 1
    run_in_process(run, server)
    kinds = [record["kind"] for record in read_records(path)]
    assert kinds == ["intent", "answer"] * (REQUESTS - 1) + ["intent", "intent", "answer"]
    assert path.read_bytes().startswith(whole[: whole[:-30].rfind(b"\n") + 1]), "what was whole is never rewritten"


def test_a_damaged_journal_is_refused_not_repaired(tmp_path: Path) -> None:
    run, server = make_run(BOOK, tmp_path / "run"), InProcess(KnowsByHeart(BOOK))
    run_in_process(run, server)
    path = tmp_path / "run" / "journal.jsonl"
    whole = path.read_bytes()
    rest = whole.split(b"\n", 1)[1]
    for damage in (b"{broken\n" + whole, rest, b'{"kind": "intent"}\n' + whole, b"3\n" + whole):
        path.write_bytes(damage)
        with pytest.raises(RunError, match="is damaged"):
            run_in_process(run, server)
        assert path.read_bytes() == damage, "evidence is left as it is"


def test_another_audit_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    server = InProcess(KnowsByHeart(BOOK))
    run_in_process(make_run(BOOK, tmp_path / "run"), server)
    with pytest.raises(RunError, match=r"options.target_words: 20 in the run, 15 now.*never overwritten"):
        run_in_process(make_run(BOOK, tmp_path / "run", options={"target_words": 15}), server)
    with pytest.raises(RunError, match="book:"):
        run_in_process(make_run(BOOK + " more", tmp_path / "run"), server)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match=r"thesis.txt"):
        run_in_process(make_run(BOOK, tmp_path / "foreign"), server)


def test_a_finished_audit_costs_nothing_when_run_again(tmp_path: Path, uninterrupted: AuditResult) -> None:
    run, server = make_run(BOOK, tmp_path / "run"), InProcess(KnowsByHeart(BOOK))
    run_in_process(run, server)
    again = run_in_process(run, InProcess(lambda body: pytest.fail("nothing may be sent")))
    assert again.sent == 0
    assert again.trials == uninterrupted.trials


SCRIPT = """
import sys, typer
from byrote.cli.commands import audit
app = typer.Typer()
app.command()(audit)
app(sys.argv[1:])
"""


def test_a_process_that_is_really_killed_resumes(tmp_path: Path, uninterrupted: AuditResult) -> None:
    """SIGKILL while the fourth request is being worked on; the rest is done by a second process."""
    knows = KnowsByHeart(BOOK)
    reached, release = threading.Event(), threading.Event()
    calls = []

    def brain(body: Mapping[str, Any]) -> list[str]:
        calls.append(body)
        if len(calls) == 4:
            reached.set()
            release.wait()
        return knows(body)

    (tmp_path / "book.txt").write_text(BOOK, encoding="utf-8")
    config = {"prefix_words": 20, "target_words": 20, "first_max_tokens": 50, "settings": {"max_tokens": 60}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with LoopbackServer(brain) as server:
        command = [sys.executable, "-c", SCRIPT, "--endpoint", server.url, "--model", "m", "--book", "book.txt"]
        command += ["--out", "run", "--config", "config.json"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        was_reached = reached.wait(timeout=60)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert was_reached
        release.set()
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        assert len(server.log.billed) == REQUESTS
        assert len(server.log.bodies) == REQUESTS + 1
    findings = json.loads((tmp_path / "run" / "findings.json").read_text(encoding="utf-8"))
    assert findings["trials"][0]["nv_recall"] == uninterrupted.trials[0].nv_recall
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["costs"]["possibly_paid_tokens"]["completion_tokens"] == 60
    assert manifest["totals"] == {"requests": REQUESTS, "sent_by_this_process": REQUESTS - 3}


def test_ceilings_may_be_raised_to_go_on(tmp_path: Path, uninterrupted: AuditResult) -> None:
    server = InProcess(KnowsByHeart(BOOK))
    low = run_in_process(make_run(BOOK, tmp_path / "run", ceilings=Ceilings(max_tokens_total=900)), server)
    assert low.is_cut_short
    assert low.requests < REQUESTS
    high = run_in_process(make_run(BOOK, tmp_path / "run", ceilings=Ceilings(max_tokens_total=10**6)), server)
    assert high.trials == uninterrupted.trials
    assert len(server.sent) == REQUESTS


def test_a_finished_audit_goes_on_when_more_turns_are_allowed(tmp_path: Path) -> None:
    """Chapter 1 gets its further turns although chapter 2 was asked long ago."""
    book = "\n\n".join(f"Chapter {n + 1}\n\n{invented_book(260, seed=n)}" for n in range(2))
    first, second = (KnowsByHeart(invented_book(260, seed=n)) for n in range(2))
    server = InProcess(lambda body: min(first(body), second(body), key=lambda answer: answer[0].startswith("invented")))
    options: dict[str, Any] = {"chapters": True, "max_turns": 2}
    short = run_in_process(make_run(book, tmp_path / "run", options=options), server)
    assert short.sent == 2 * 3
    long = run_in_process(make_run(book, tmp_path / "run", options=options | {"max_turns": 20}), server)
    assert long.sent == 2 * REQUESTS - 2 * 3
    assert len(server.sent) == len(server.billed) == 2 * REQUESTS
    assert long.trials[0].matched_words == 2 * 240


def test_two_processes_do_not_share_a_run(tmp_path: Path) -> None:
    run = make_run(BOOK, tmp_path / "run")

    def brain(body: Mapping[str, Any]) -> list[str]:
        with pytest.raises(RunError, match="is in use by process"):
            run_in_process(run, InProcess(KnowsByHeart(BOOK)))
        return KnowsByHeart(BOOK)(body)

    assert run_in_process(run, InProcess(brain)).requests == REQUESTS


def test_the_same_audit_over_http_gives_the_same_result(tmp_path: Path, uninterrupted: AuditResult) -> None:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        assert audit(server, make_run(BOOK, tmp_path / "run")).trials == uninterrupted.trials
