"""Nothing an endpoint counts can empty a purse: bookings, ceilings and prices."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from byrote.errors import EndpointError
from byrote.longform.journal import Ceilings
from byrote.longform.loop import Stop
from byrote.models.served.retries import RetryPolicy
from byrote.store.journal import read_records
from tests.longform.audits import make_run
from tests.longform.hostile_audits import BOOK, KNOWS, at, audited, honest
from tests.loopback.hostile import (
    Act,
    HostileServer,
    completion,
    sent,
    silent,
)

USAGES = {
    "missing": "absent",
    "null": None,
    "a list": [1, 2],
    "half": {"prompt_tokens": 100},
    "negative": {"prompt_tokens": -5, "completion_tokens": 10},
    "a fraction": {"prompt_tokens": 100, "completion_tokens": 1.5},
    "text": {"prompt_tokens": "100", "completion_tokens": "10"},
    "a truth": {"prompt_tokens": True, "completion_tokens": True},
    "not a number": {"prompt_tokens": float("nan"), "completion_tokens": float("inf")},
    "absurd": {"prompt_tokens": 10**30, "completion_tokens": 10**30},
    "nothing": {"prompt_tokens": 0, "completion_tokens": 0},
    "too few for the text": {"prompt_tokens": 1, "completion_tokens": 60},
}


@pytest.mark.parametrize("usage", USAGES.values(), ids=USAGES)
def test_a_usage_that_cannot_be_true_is_booked_at_no_less_than_the_worst_case(tmp_path: Path, usage: Any) -> None:
    def choose(number: int, body: Mapping[str, Any]) -> Act:
        return sent(completion(KNOWS(body)[0], usage=usage)) if number == 1 else honest(body)

    run = make_run(BOOK, tmp_path / "run")
    with HostileServer(choose) as server:
        result = audited(server, run)
        assert result.trials[0].sections[0].stop is Stop.END_OF_BOOK
        records = list(read_records(tmp_path / "run" / "journal.jsonl"))
        (intent, answer) = [record for record in records if record["place"].endswith("phase-2/0")]
        assert answer["booked"]["prompt_tokens"] >= intent["worst_case"]["prompt_tokens"]
        assert answer["booked"]["completion_tokens"] >= 60
        asked = len(server.bodies)
        again = audited(server, run)
    assert (again.trials, again.costs) == (result.trials, result.costs)
    assert len(server.bodies) == asked, "resuming pays nothing"


def test_an_answer_beyond_its_limit_without_a_count_is_booked_by_its_bytes(tmp_path: Path) -> None:
    flood = "word " * 20_000
    run = make_run(BOOK, tmp_path / "run", options={"max_turns": 1})
    with HostileServer(at(1, sent(completion(flood)))) as server:
        with pytest.warns(UserWarning, match=r"phase-2/0 had 92,320 characters more than the 60 tokens asked for"):
            first = audited(server, run)
        assert audited(server, run).trials == first.trials, "and a resumed audit reads the same"
    answers = [record for record in read_records(tmp_path / "run" / "journal.jsonl") if record["kind"] == "answer"]
    assert answers[1]["booked"]["completion_tokens"] == len(flood)
    (kept,) = answers[1]["answers"]
    assert (kept["text"], kept["cut_characters"]) == (flood[: 60 * 128], len(flood) - 60 * 128)


def test_no_more_answers_are_kept_than_were_asked_for(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "word"}
    many = [{"index": index, "finish_reason": "stop", "message": message} for index in range(500)]
    with HostileServer(lambda number, body: sent(completion("", choices=many))) as server:
        audited(server, make_run(BOOK, tmp_path / "run"))
    (answer,) = [record for record in read_records(tmp_path / "run" / "journal.jsonl") if record["kind"] == "answer"]
    assert len(answer["answers"]) == 1


def test_an_endpoint_that_overruns_its_limit_cannot_pass_a_ceiling_twice(tmp_path: Path) -> None:
    """It counts 50,000 tokens for answers limited to 60. One request can do that; the next has 50,000 more to fear."""

    def choose(number: int, body: Mapping[str, Any]) -> Act:
        return sent(completion(KNOWS(body)[0], usage={"prompt_tokens": 100, "completion_tokens": 50_000}))

    run = make_run(BOOK, tmp_path / "run", ceilings=Ceilings(max_tokens_total=120_000))
    with HostileServer(choose) as server:
        result = audited(server, run)
        assert result.is_cut_short
        assert len(server.bodies) == 2
        assert audited(server, run).is_cut_short
        assert len(server.bodies) == 2, "the resumed audit knows it too"


@pytest.mark.parametrize("act", [silent, sent(b"busy", status="502 Bad Gateway"), sent(b"{}")])
def test_requests_have_a_ceiling_that_counts_failures_and_holds_across_resumes(tmp_path: Path, act: Act) -> None:
    run = make_run(BOOK, tmp_path / "run", ceilings=Ceilings(max_requests=3), retry=RetryPolicy(attempts=2))
    with HostileServer(lambda number, body: act) as server:
        for _ in range(3):
            with pytest.raises(EndpointError):
                audited(server, run, timeout_seconds=0.2)
        assert len(server.bodies) == 3
