"""How prompts become requests: siblings together, nothing lost, nothing asked twice, ceilings and time-outs kept."""

import errno
import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import BudgetError, DamageError, EndpointError, RunError, StorageError
from byrote.models.listed import Prompt, Row, row_of
from byrote.models.responder import RequestFailed
from byrote.models.served.check import RepeatCheck, largest_change
from byrote.models.served.client import CHAINS_PER_REQUEST, RequestLimits
from byrote.models.served.logprobs import bundles, key_of, packed
from byrote.models.served.model import connect
from byrote.models.served.retries import Retries, RetryPolicy
from byrote.policy import Policy
from byrote.store.folder import RunFolder
from byrote.store.journal import AnswerFile, RequestCountFile
from tests.loopback.hostile import HostileServer, sent
from tests.loopback.logprobs import Habits
from tests.loopback.server import Fault
from tests.models.served import KEY, MemoryRequestCount, open_served, quick, serving, word_folder
from tests.table import TableModel

POLICY = Policy(1.0, 4)
TABLE = TableModel.random(5, vocab_size=9)
ids = st.lists(st.integers(0, 3), min_size=1, max_size=6)
prompts = st.lists(
    ids.flatmap(lambda tokens: st.integers(0, len(tokens) - 1).map(lambda first: Prompt(tuple(tokens), first))),
    max_size=40,
)


class Kept:
    """A cache in memory."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}

    def find(self, key: str) -> bytes | None:
        return self.answers.get(key)

    def keep(self, answers: Mapping[str, bytes]) -> None:
        assert not self.answers.keys() & answers.keys(), "requested twice"
        self.answers |= answers


def single(*token_ids: int) -> Prompt:
    return Prompt(token_ids, len(token_ids) - 1)


@given(prompts, st.integers(1, 12))
def test_requests_hold_every_prompt_once_in_order_and_one_kind_each(asked: list[Prompt], most: int) -> None:
    made = list(bundles(asked, most))
    assert [prompt for bundle in made for prompt in bundle] == asked
    for bundle in made:
        assert len({prompt.is_chain for prompt in bundle}) == 1
        assert 1 <= len(bundle) <= (min(most, CHAINS_PER_REQUEST) if bundle[0].is_chain else most)


def test_siblings_stay_together_where_they_fit() -> None:
    families = [[single(number, number, number, 0, end) for end in range(5)] for number in range(1, 4)]
    made = list(bundles([prompt for family in families for prompt in family], 8))
    assert made == families


def test_equal_prompts_of_one_forward_are_asked_once(tmp_path: Path) -> None:
    cache = Kept()
    with serving(TABLE) as server, open_served(server, tmp_path, POLICY) as model:
        model.use_cache(cache)
        seen = len(server.seen.bodies)
        asked = [single(1, 2), single(3, 4), single(1, 2)]
        first = model.client.rows(asked)
        again = model.client.rows(asked)
        assert len(server.seen.bodies) == seen + 1
    for one, other in zip(first, again, strict=True):
        assert one[0].token_ids.tolist() == other[0].token_ids.tolist()
        assert one[0].log_probs.tolist() == other[0].log_probs.tolist()
    assert set(cache.answers) > {key_of(single(1, 2)), key_of(single(3, 4))}


def test_as_many_requests_are_under_way_as_allowed(tmp_path: Path) -> None:
    gate = threading.Barrier(3, timeout=20)

    def shift(prompts: int) -> float:
        return 0.0

    with (
        serving(TABLE, Habits(shift=shift)) as server,
        open_served(server, tmp_path, POLICY, quick(concurrency=3, prompts_per_request=1)) as model,
    ):
        admit = server.admit
        server.admit = lambda body: (admit(body), gate.wait())[0]  # type: ignore[method-assign]
        model.client.rows([single(1, number) for number in range(6)])
        assert server.seen.most_at_once == 3


def test_the_wait_that_a_server_asks_for_is_kept(tmp_path: Path) -> None:
    waits: list[float] = []
    limits = RequestLimits(sleep=waits.append, retry=RetryPolicy(attempts=4, base_seconds=2.0))
    with (
        serving(TABLE, Habits(retry_after="7")) as server,
        open_served(server, tmp_path, POLICY, limits) as model,
    ):
        first = len(server.seen.bodies)
        server.faults = {first: Fault.RATE_LIMIT, first + 1: Fault.SERVER_ERROR, first + 2: Fault.TRUNCATED}
        model.next_logits([[1, 2]])
    assert 7.0 <= waits[0] <= 7.7
    assert [2 <= waits[1] <= 4, 4 <= waits[2] <= 8] == [True, True], "half to all of the doubled wait"


def test_a_server_that_says_nothing_is_given_up_and_named(tmp_path: Path) -> None:
    limits = quick(timeout_seconds=5.0)
    with serving(TABLE) as server, open_served(server, tmp_path, POLICY, limits) as model:
        model.client.server.http.timeout_seconds = 0.3
        server.faults = dict.fromkeys(range(100), Fault.SLOW)
        with pytest.raises(EndpointError, match="did not answer in time"):
            model.next_logits([[1, 2]])
        server.closing.set()


def test_a_ceiling_is_never_passed_even_by_many_threads(tmp_path: Path) -> None:
    cache = Kept()
    with (
        serving(TABLE) as server,
        open_served(server, tmp_path, POLICY, quick(prompts_per_request=1, max_requests=20)) as model,
    ):
        model.use_cache(cache)
        with pytest.raises(BudgetError, match="--max-requests 20"):
            model.client.rows([single(1, a, b) for a in range(9) for b in range(9)])
        assert server.seen.requests == model.sent.requests == 20


def test_answers_survive_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    first = AnswerFile.open(path, "run")
    first.keep({"a": b"one", "b": b"two"})
    first.keep({"d": b"four"})
    first.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    second = AnswerFile.open(path, "run")
    assert (second.find("a"), second.find("b"), second.find("c"), second.find("d")) == (b"one", b"two", None, None)
    second.keep({"c": b"three"})
    second.close()
    third = AnswerFile.open(path, "run")
    assert (third.find("a"), third.find("c"), third.records) == (b"one", b"three", 2)
    assert third.last_hash == second.last_hash
    third.close()


def test_a_kill_right_before_the_end_of_a_line_costs_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    first = AnswerFile.open(path, "run")
    first.keep({"a": b"one"})
    first.close()
    path.write_bytes(path.read_bytes()[:-1])
    second = AnswerFile.open(path, "run")
    second.keep({"b": b"two"})
    second.close()
    third = AnswerFile.open(path, "run")
    assert (third.find("a"), third.find("b"), third.records) == (b"one", b"two", 2)
    third.close()


def test_a_full_disk_leaves_whole_lines_for_the_answers_that_still_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "answers.jsonl", os.write
    cache = AnswerFile.open(path, "run")

    def half(descriptor: int, content: bytes) -> int:
        write(descriptor, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(StorageError, match="make room"):
            cache.keep({"a": b"one"})
    cache.keep({"b": b"two"})
    cache.close()
    again = AnswerFile.open(path, "run")
    assert (again.find("a"), again.find("b"), again.records) == (None, b"two", 1)
    again.close()


def test_a_count_goes_on_in_the_next_opening_and_starts_over_if_wanted(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    first = RequestCountFile.open(folder)
    assert (first.requests, first.tokens) == (0, 0)
    first.add(tokens=9)
    first.add(tokens=0)
    with pytest.raises(RunError, match="in use by another process"):
        RequestCountFile.open(folder)
    first.close()
    again = RequestCountFile.open(folder)
    assert (again.requests, again.tokens) == (2, 9)
    again.close()
    fresh = RequestCountFile.open(folder, fresh=True)
    assert (fresh.requests, fresh.tokens) == (0, 0)
    fresh.close()


@pytest.mark.parametrize("place", [0, 12, 40, -3, None])
def test_a_damaged_count_is_refused_by_name(tmp_path: Path, place: int | None) -> None:
    folder = RunFolder(tmp_path / "run")
    sent = RequestCountFile.open(folder)
    sent.add(tokens=7)
    sent.close()
    content = bytearray(folder.requests.read_bytes())
    if place is None:
        del content[-1]
    else:
        content[place] ^= 1
    folder.requests.write_bytes(content)
    with pytest.raises(DamageError, match=r"\.requests is damaged"):
        RequestCountFile.open(folder)
    RequestCountFile.open(folder, fresh=True).close()


def test_nothing_is_counted_in_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(RunError, match=r"holds no byrote run \(it has 'letter.txt'\)"):
        RequestCountFile.open(RunFolder(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_run_does_not_go_on_with_another_model(tmp_path: Path) -> None:
    cache, other = Kept(), TableModel.random(6, vocab_size=9)
    with serving(TABLE) as server, open_served(server, tmp_path, POLICY) as model:
        model.use_cache(cache)
    with serving(TABLE, Habits(shift=lambda prompts: 0.1)) as server, open_served(server, tmp_path, POLICY) as model:
        model.use_cache(cache)  # numbers that move a little are no other model
    with (
        serving(other) as server,
        open_served(server, tmp_path, POLICY) as model,
        pytest.raises(EndpointError, match="does not answer as it did"),
    ):
        model.use_cache(cache)


def row(**told: float) -> Row:
    said = {int(name[1:]): math.log(value) for name, value in told.items()}
    return row_of(said, listed=len(said), vocab_size=9)


def test_lists_of_one_model_and_of_two_are_told_apart() -> None:
    listed = row(t1=0.4, t2=0.21)
    assert largest_change(listed, row(t1=0.41, t3=0.209)) < 0.05, "a tie at the end of a list is no change"
    assert largest_change(listed, row(t1=0.2, t2=0.21)) == pytest.approx(math.log(2))
    assert largest_change(row(t1=0.2, t2=0.21), listed) == pytest.approx(math.log(2))
    assert largest_change(row(t1=0.8), row(t2=0.8)) == pytest.approx(math.log(4)), "what is left is 0.2 at most"
    assert largest_change(row(t1=0.8, t2=0.01), row(t1=0.8, t3=0.01)) == pytest.approx(0.0)


@pytest.mark.parametrize("place", [5, 60, 200, -1])
def test_a_changed_answer_or_one_of_another_run_is_refused(place: int, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    cache = AnswerFile.open(path, "run")
    cache.keep({"a": b"one"})
    cache.keep({"b": b"two"})
    cache.close()
    with pytest.raises(RunError, match="another run"):
        AnswerFile.open(path, "other")
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="is damaged"):
        AnswerFile.open(path, "run")


def test_a_second_asking_compares_what_both_lists_hold(tmp_path: Path) -> None:
    cache = Kept()
    habits = Habits(shift=lambda prompts: 0.25 if prompts == 1 else 0.0)
    with serving(TABLE, habits) as server, open_served(server, tmp_path, POLICY) as model:
        model.use_cache(cache)
        asked = [single(1, 2, number) for number in range(4)]
        model.client.rows(asked)
        second = RepeatCheck(cache)
        model.with_cache(second).client.rows(asked)
    assert second.prompts_compared == 4
    assert second.largest_shift == pytest.approx(0.25, abs=1e-6)
    assert second.lists_changed == 0
    rounded = Row(np.array([3], np.int32), np.array([-math.inf], np.float32))
    told = Row(np.array([3], np.int32), np.array([-104.0], np.float32))
    cache.answers["rounded to 0"] = packed([rounded])
    second.keep({"rounded to 0": packed([told])})
    assert second.largest_shift == pytest.approx(0.25, abs=1e-6)
    assert KEY not in str(cache.answers)
    cache.answers["another list"] = packed([row(t1=0.5, t2=0.2)])
    second.keep({"another list": packed([row(t3=0.5, t2=0.05)])})
    assert second.largest_shift == pytest.approx(math.log(10), abs=1e-6), "token 1 fell from 0.5 to 0.05 at most"


def test_waits_differ_at_random_and_are_never_shorter_than_the_server_asks() -> None:
    waits: list[float] = []
    shares = iter([0.0, 1.0, 0.5])
    policy = RetryPolicy(attempts=4, base_seconds=2.0)
    retries = Retries(policy, option="--endpoint", sleep=waits.append, uniform=lambda: next(shares))
    failures = [RequestFailed("busy.", may_be_billed=False, retry_after_seconds=wait) for wait in (None, None, 3.0)]

    def attempt() -> str:
        if failures:
            raise failures.pop(0)
        return "answered"

    assert retries(attempt) == "answered"
    assert waits == [1.0, 4.0, pytest.approx(3.15)]


def test_an_address_is_in_doubt_only_until_it_answered_once() -> None:
    def gone() -> None:
        raise RequestFailed("it cannot be reached.", may_be_billed=False, was_reached=False)

    retries = Retries(RetryPolicy(attempts=2), option="--endpoint", sleep=lambda seconds: None)
    with pytest.raises(EndpointError, match="check --endpoint"):
        retries(gone)
    retries(lambda: "answered")
    with pytest.raises(EndpointError, match="run the same command again later"):
        retries(gone)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_the_key_of_a_scan_follows_no_redirect(tmp_path: Path, status: str) -> None:
    with HostileServer(lambda number, body: sent(b"{}")) as elsewhere:
        act = sent(b"", status=status, headers={"Location": f"{elsewhere.url}/models"})
        words = str(word_folder(tmp_path, 5))
        with HostileServer(lambda number, body: act) as server, pytest.raises(EndpointError, match="another address"):
            connect(
                f"endpoint:{server.url}",
                key=KEY,
                policy=POLICY,
                tokenizer=words,
                limits=quick(),
                sent=MemoryRequestCount(),
            )
        assert server.authorisations
        assert elsewhere.bodies == []
