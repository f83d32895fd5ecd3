"""The audit against a real HTTP server through the real client library, healthy and with every fault."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from byrote.errors import EndpointError
from byrote.longform.loop import Stop
from byrote.longform.options import CONTINUE_PROMPTS, INSTRUCTIONS, GenerationSettings
from byrote.longform.run import run_audit
from byrote.models.served.chat import ChatResponder
from byrote.models.served.client import retry_after
from byrote.models.served.retries import RetryPolicy
from byrote.store.journal import read_records
from tests.longform.audits import KEY, CountingClock, audit, invented_book, make_run
from tests.loopback.brains import KnowsByHeart
from tests.loopback.server import Fault, LoopbackServer

BOOK = invented_book()
# Phase 1 brings 50 words, each turn 60: 20 + 50 + 6 × 60 > 400, and one more turn says THE END.
TURNS = 7


def test_a_memorized_book_is_recovered_near_completely(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run"))
    (trial,) = result.trials
    (section,) = trial.sections
    assert section.stop is Stop.END_OF_BOOK
    assert section.similarity == 1.0
    assert section.turns == TURNS
    assert section.generation.split() == BOOK.split()[20:]
    assert trial.nv_recall == 380 / 400, "all but the prefix, which was given and not generated"
    assert len(server.log.bodies) == len(server.log.billed) == result.requests == TURNS + 1


def test_a_control_fails_phase_1_and_phase_2_is_not_run(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        result = audit(server, make_run(invented_book(seed=1), tmp_path / "run"))
    (trial,) = result.trials
    assert trial.sections[0].stop is Stop.PHASE_1_FAILED
    assert trial.nv_recall is None
    assert trial.record()["sections"][0]["recall"] is None
    assert len(server.log.bodies) == 1


def test_the_prefix_is_the_only_ground_truth_that_is_sent(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        audit(server, make_run(BOOK, tmp_path / "run"))
    prefix = " ".join(BOOK.split()[:20])
    for body in server.log.bodies:
        asked = [message["content"] for message in body["messages"] if message["role"] == "user"]
        assert asked[0] == f"{INSTRUCTIONS['plain']}\n\n{prefix}"
        assert set(asked[1:]) <= {CONTINUE_PROMPTS["plain"]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "waits", "possibly_paid"),
    [
        (Fault.RATE_LIMIT, [7.0], False),
        (Fault.SERVER_ERROR, [1.0], False),
        (Fault.TRUNCATED, [1.0], True),
        (Fault.DROPPED, [1.0], True),
        (Fault.DROPPED_AFTER_WORK, [1.0], True),
    ],
)
@pytest.mark.parametrize("place", [0, 3])
def test_a_passing_fault_is_waited_out_and_changes_nothing(
    tmp_path: Path, stream: bool, fault: Fault, waits: list[float], possibly_paid: bool, place: int
) -> None:
    clock = CountingClock()
    with LoopbackServer(KnowsByHeart(BOOK), {place: fault}) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run"), clock=clock, stream=stream)
    assert result.trials[0].sections[0].generation.split() == BOOK.split()[20:]
    # What a server asks for is waited out, and a tenth more at most; other waits are shortened at random.
    low, high = (1.0, 1.1) if fault is Fault.RATE_LIMIT else (0.5, 1.0)
    assert [low * most <= wait <= high * most for wait, most in zip(clock.waits, waits, strict=True)] == [True]
    assert result.requests == len(server.log.billed) == TURNS + 1
    assert len(server.log.bodies) == TURNS + 2
    assert server.log.keys[place] == server.log.keys[place + 1], "a repetition carries the same idempotency key"
    assert (result.costs["possibly_paid_tokens"]["completion_tokens"] > 0) is possibly_paid


def test_an_answer_that_is_not_json_is_asked_again(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK), {2: Fault.NOT_JSON, 5: Fault.NO_CHOICES}) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run"))
    assert result.trials[0].nv_recall == 380 / 400


def test_a_slow_answer_times_out_and_is_asked_again(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK), {2: Fault.SLOW}) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run"), timeout_seconds=2.0)
    assert result.trials[0].nv_recall == 380 / 400
    assert result.costs["possibly_paid_tokens"]["completion_tokens"] == 60


def test_waits_double_until_the_attempts_are_used_up_and_the_audit_can_go_on_later(tmp_path: Path) -> None:
    clock = CountingClock()
    run = make_run(BOOK, tmp_path / "run", retry=RetryPolicy(attempts=4, base_seconds=2.0))
    with LoopbackServer(KnowsByHeart(BOOK), dict.fromkeys(range(3, 7), Fault.SERVER_ERROR)) as server:
        with pytest.raises(EndpointError, match=r"answered 500: .* Nothing answered is lost"):
            audit(server, run, clock=clock)
        assert [most / 2 <= wait <= most for wait, most in zip(clock.waits, [2, 4, 8], strict=True)] == [True] * 3
        result = audit(server, run)
    assert result.trials[0].nv_recall == 380 / 400
    assert len(server.log.billed) == TURNS + 1


def test_a_server_that_asks_for_a_long_wait_ends_the_run_instead(tmp_path: Path) -> None:
    run = make_run(BOOK, tmp_path / "run", retry=RetryPolicy(longest_wait_seconds=5.0))
    with (
        LoopbackServer(KnowsByHeart(BOOK), {2: Fault.RATE_LIMIT}) as server,
        pytest.raises(EndpointError, match="asks to wait 7 seconds; run the same command again after that"),
    ):
        audit(server, run)


def test_a_refusal_ends_phase_2_and_is_not_part_of_the_generation(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK), {3: Fault.REFUSAL}) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run"))
    outcome = result.trials[0].sections[0]
    assert (outcome.stop, outcome.turns) == (Stop.REFUSAL, 3)
    assert outcome.generation.split() == BOOK.split()[20 : 20 + 50 + 120]


def test_refusals_are_asked_again_after_growing_waits_if_wanted(tmp_path: Path) -> None:
    clock = CountingClock()
    run = make_run(BOOK, tmp_path / "run", options={"refusal_retries": 3, "refusal_wait_seconds": 50.0})
    with LoopbackServer(KnowsByHeart(BOOK), dict.fromkeys((3, 4, 5), Fault.REFUSAL)) as server:
        result = audit(server, run, clock=clock)
    assert clock.waits == [50.0, 100.0, 120.0]
    assert result.trials[0].nv_recall == 380 / 400
    assert result.trials[0].sections[0].turns == TURNS + 3


@pytest.mark.parametrize(("empty_answers", "stop"), [(2, Stop.END_OF_BOOK), (3, Stop.EMPTY_ANSWERS)])
def test_empty_answers_count_as_turns_and_end_the_loop_when_there_are_too_many(
    tmp_path: Path, empty_answers: int, stop: Stop
) -> None:
    clock = CountingClock()
    faults = dict.fromkeys(range(2, 2 + empty_answers), Fault.EMPTY)
    with LoopbackServer(KnowsByHeart(BOOK), faults) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run", options={"max_empty": 2}), clock=clock)
    outcome = result.trials[0].sections[0]
    assert outcome.stop is stop
    assert clock.waits == [1.0, 1.0]
    assert outcome.turns == (TURNS + 2 if stop is Stop.END_OF_BOOK else 1 + 3)
    assert outcome.empty_answers == empty_answers


@pytest.mark.parametrize("stream", [False, True])
def test_an_endpoint_may_give_fewer_completions_than_asked(tmp_path: Path, stream: bool) -> None:
    knows = KnowsByHeart(BOOK)
    with LoopbackServer(lambda body: knows(body)[:1]) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run", options={"completions": 3}), stream=stream)
    assert result.trials[0].nv_recall == 380 / 400


def test_an_end_of_the_book_in_phase_1_needs_no_phase_2(tmp_path: Path) -> None:
    book = invented_book(200)
    run = make_run(book, tmp_path / "run", options={"first_max_tokens": 500})
    with LoopbackServer(lambda body: [f"{' '.join(book.split()[20:])} THE END"]) as server:
        outcome = audit(server, run).trials[0].sections[0]
    assert (outcome.stop, outcome.turns, len(server.log.bodies)) == (Stop.END_OF_BOOK, 0, 1)
    assert outcome.generation.split() == book.split()[20:]


def test_the_query_budget_ends_phase_2(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run", options={"max_turns": 2}))
    assert result.trials[0].sections[0].stop is Stop.QUERY_BUDGET
    assert len(server.log.bodies) == 3


def test_a_conversation_that_outgrows_the_model_ends_phase_2(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK), {4: Fault.TOO_LONG}) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run"))
    assert result.trials[0].sections[0].stop is Stop.REJECTED
    assert result.trials[0].matched_words == 50 + 3 * 60


def test_a_shorter_history_is_sent_when_asked_for(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        audit(server, make_run(BOOK, tmp_path / "run", options={"history_turns": 1, "max_turns": 4}))
    assert [len(body["messages"]) for body in server.log.bodies] == [1, 3, 5, 5, 5]


def test_the_first_usable_of_several_completions_is_taken(tmp_path: Path) -> None:
    knows = KnowsByHeart(BOOK)

    def brain(body: dict[str, Any]) -> list[str]:
        return ["", "I cannot continue this copyrighted text.", knows(body)[0], "something else"]

    with LoopbackServer(brain) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run", options={"completions": 4}))
    assert result.trials[0].nv_recall == 380 / 400
    assert {body["n"] for body in server.log.bodies} == {4}


@pytest.mark.parametrize("stream", [False, True])
def test_settings_travel_to_the_endpoint(tmp_path: Path, stream: bool) -> None:
    settings = GenerationSettings(max_tokens=70, temperature=0.5, frequency_penalty=2.0, presence_penalty=0.1)
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        audit(server, make_run(BOOK, tmp_path / "run", options={"settings": settings}), stream=stream)
    body = server.log.bodies[1]
    assert body["model"] == "loopback-model"
    assert (body["max_tokens"], body["temperature"]) == (70, 0.5)
    assert (body["frequency_penalty"], body["presence_penalty"]) == (2.0, 0.1)
    assert server.log.bodies[0]["max_tokens"] == 50


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault.ECHO_KEY, "answered 401: .*check the key in the environment"),
        (Fault.NOT_FOUND, "answered 404: .*check --endpoint and --model 'loopback-model'"),
        (Fault.TOO_LONG, "answered 400: .*change the settings it objects to"),
    ],
)
def test_what_repetition_cannot_mend_is_said_at_once(tmp_path: Path, fault: Fault, message: str) -> None:
    clock = CountingClock()
    with (
        LoopbackServer(KnowsByHeart(BOOK), {0: fault}) as server,
        pytest.raises(EndpointError, match=message) as raised,
    ):
        audit(server, make_run(BOOK, tmp_path / "run"), clock=clock)
    assert clock.waits == []
    assert KEY not in str(raised.value)


def test_an_unreachable_endpoint_is_one_sentence_and_no_wait(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        url = server.url
    clock = CountingClock()
    responder = ChatResponder(url, "model", key=KEY)
    with pytest.raises(EndpointError, match=r"127.0.0.1:\d+/v1 cannot be reached.*check --endpoint"):
        run_audit(make_run(BOOK, tmp_path / "run"), responder, sleep=clock.sleep)
    responder.close()
    assert clock.waits == []


@pytest.mark.parametrize("faults", [{}, {0: Fault.ECHO_KEY}, {2: Fault.SERVER_ERROR, 4: Fault.TRUNCATED}])
def test_the_key_is_sent_but_stands_in_no_file(tmp_path: Path, faults: dict[int, Fault]) -> None:
    with LoopbackServer(KnowsByHeart(BOOK), faults) as server, suppress(EndpointError):
        audit(server, make_run(BOOK, tmp_path / "run"))
    assert server.log.authorisations[0] == f"Bearer {KEY}"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"journal.jsonl", "identity.json"}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_the_journal_tells_the_whole_conversation(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK), {2: Fault.SERVER_ERROR}) as server:
        audit(server, make_run(BOOK, tmp_path / "run"))
    records = list(read_records(tmp_path / "run" / "journal.jsonl"))
    sent: list[list[Any]] = [[]]
    for record in records:
        if record["kind"] == "intent":
            sent.append([*sent[-1][: record["shared_messages"]], *record["messages"]])
    assert sent[1:] == [body["messages"] for body in server.log.bodies]
    assert [record["kind"] for record in records][:6] == ["intent", "answer", "intent", "answer", "intent", "failure"]
    assert sum(record["kind"] == "answer" for record in records) == TURNS + 1


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("7", 7.0, 7.0),
        ("0.5", 0.5, 0.5),
        ("-3", 0.0, 0.0),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 1e9, 1e10),
        ("Fri, 01 Jan 1999 00:00:00 GMT", 0.0, 0.0),
    ],
)
def test_retry_after_is_read_in_seconds_or_as_a_date(value: str, least: float, most: float) -> None:
    seconds = retry_after({"retry-after": value})
    assert seconds is not None
    assert least <= seconds <= most


@pytest.mark.parametrize("headers", [{}, {"retry-after": "soon"}, {"retry-after": "nan"}, {"retry-after": ""}])
def test_an_absent_or_unreadable_retry_after_is_absent(headers: dict[str, str]) -> None:
    assert retry_after(headers) is None
