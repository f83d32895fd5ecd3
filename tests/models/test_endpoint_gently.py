"""Servers are not overrun: one request at first, more while answers come, fewer after failures, and requests in pieces
that a small server can hold."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.models.listed import Prompt
from byrote.models.responder import RequestFailed
from byrote.models.served import logprobs as served_rows
from byrote.models.served.client import Pace, Ramp
from byrote.models.served.logprobs import bundles
from byrote.policy import Policy
from tests.loopback.logprobs import small
from tests.models.served import open_served, quick, serving
from tests.table import TableModel

POLICY = Policy(1.0, 4)
TABLE = TableModel.random(5, vocab_size=9)


def allowed(ramp: Ramp) -> int:
    return int(ramp._allowed)


def play(ramp: Ramp, has_failed: bool) -> None:
    try:
        with ramp.place():
            if has_failed:
                raise RequestFailed("busy.", may_be_billed=False)
    except RequestFailed:
        pass


def test_requests_under_way_rise_with_answers_and_are_halved_by_a_failure() -> None:
    ramp, seen = Ramp(8), []
    for has_failed in [False] * 9 + [True, False, False, False, False, False]:
        play(ramp, has_failed)
        seen.append(allowed(ramp))
    assert seen == [2, 3, 4, 5, 6, 7, 8, 8, 8, 4, 4, 4, 4, 4, 5]


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 9))
def test_at_least_one_and_at_most_the_ceiling_may_be_under_way(outcomes: list[bool], most: int) -> None:
    ramp = Ramp(most)
    for has_failed in outcomes:
        play(ramp, has_failed)
        assert 1 <= allowed(ramp) <= most


def test_the_first_request_is_alone() -> None:
    ramp, is_first, may_end = Ramp(8), threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        with ramp.place():
            is_first.set()
            may_end.wait(20)
            order.append("first")

    def second() -> None:
        with ramp.place():
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert is_first.wait(20)
    threads[1].start()
    may_end.set()
    for thread in threads:
        thread.join(20)
    assert order == ["first", "second"]


def test_requests_begin_no_faster_than_the_pace() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(30, sleep=sleep, clock=lambda: now[0])
    pace.wait()
    pace.wait()
    now[0] += 0.5
    pace.wait()
    now[0] += 60.0
    pace.wait()
    assert slept == [2.0, 1.5]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 12),
    st.integers(1, 40),
)
def test_chains_of_a_request_hold_no_more_places_than_fit(
    shapes: list[tuple[int, bool]], most: int, places: int
) -> None:
    asked = [
        Prompt(tuple(range(number, number + length + 1)), 0 if is_chain else length)
        for number, (length, is_chain) in enumerate(shapes)
    ]
    made = list(bundles(asked, most, places=places))
    assert [prompt for bundle in made for prompt in bundle] == asked
    for bundle in made:
        if bundle[0].is_chain and len(bundle) > 1:
            assert sum(len(prompt.token_ids) for prompt in bundle) <= places


def test_a_server_that_takes_two_requests_at_once_answers_them_all(tmp_path: Path) -> None:
    asked = [Prompt((1, a, b), 2) for a in range(9) for b in range(9)]
    expected = [TABLE.next_logits([prompt.token_ids]).log_softmax(-1)[0] for prompt in asked]
    with serving(TABLE) as plain:
        server = small(plain)
        with open_served(server, tmp_path, POLICY, quick(prompts_per_request=1)) as model:
            rows = model.client.rows(asked)
    assert server.refused < len(asked) // 2, "far fewer failures than answers"
    for (row,), truth in zip(rows, expected, strict=True):
        assert row.log_probs.tolist() == pytest.approx(truth.sort(descending=True).values[:4].tolist(), abs=1e-5)


@pytest.mark.parametrize("places", [40, 10, 6, 4])
def test_requests_too_large_for_a_server_are_sent_in_pieces(places: int, tmp_path: Path) -> None:
    windows = [[1, 2, 3, number, 5, 6] for number in range(8)]
    expected = TABLE.score(windows, 3, [POLICY]).log_probs
    with serving(TABLE) as plain, open_served(plain, tmp_path, POLICY) as model:
        server = small(plain)
        server.room, server.places = 100, places
        found = model.score(windows, 3, [POLICY]).log_probs
        seen = len(server.seen.bodies)
        again = model.score([[2, 2, 3, number, 5, 6] for number in range(8)], 3, [POLICY])
        refused_later = server.refused
        model.score([[3, 2, 3, number, 5, 6] for number in range(8)], 3, [POLICY])
        assert server.refused == refused_later, "the size that fits is remembered"
    assert found.flatten().tolist() == pytest.approx(expected.flatten().tolist(), abs=1e-5)
    assert len(again.log_probs) == 1
    assert seen > 0


def test_a_large_vocabulary_makes_small_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_rows, "CHAIN_BYTES", 4 * 9 * 12)
    with serving(TABLE) as server, open_served(server, tmp_path, POLICY) as model:
        first = len(server.seen.bodies)
        model.score([[1, 2, 3, number, 5, 6] for number in range(7)], 3, [POLICY])
        assert sorted(len(body["prompt"]) for body in server.seen.bodies[first:]) == [1, 2, 2, 2]
