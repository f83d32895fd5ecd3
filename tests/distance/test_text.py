"""The text rule against plain Python: normal form in pieces, characters of tokens, rows of edits."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from byrote.distance.text import TextDistance, TokenTexts
from byrote.normal_form import FORMS, LONGEST_FORM, normalised
from tests.distance import plain_text

LETTERS = st.text(st.sampled_from("ab -—–'’“…\u00a0\n\u00ad\u200dé\u0301ệ가￦😀\ufffdᾂ"), max_size=8)
"""Characters that the normal form treats in every way, of one to four bytes."""
TARGETS = st.text(st.sampled_from("ab-é' 가😀"), min_size=1, max_size=9).map(normalised).filter(bool)


def pieces_of_bytes(data: st.DrawFn, count: int) -> list[bytes]:  # type: ignore[type-arg]
    texts = st.lists(st.one_of(LETTERS, st.text(max_size=3)), max_size=3).map("".join)
    torn = st.tuples(texts, st.integers(0, 5), st.integers(0, 5)).map(
        lambda one: one[0].encode()[one[1] : len(one[0].encode()) - one[2]]
    )
    odd = st.binary(max_size=4)
    return data(st.lists(st.one_of(torn, odd, st.just(b"")), min_size=count, max_size=count))  # type: ignore[return-value]


@given(st.one_of(LETTERS, st.text()))
def test_the_normal_form_is_that_of_plain_python(text: str) -> None:
    assert normalised(text) == plain_text.plain_normal_form(text)
    assert normalised(normalised(text)) == normalised(text)


def test_no_code_point_has_a_longer_form_than_declared() -> None:
    assert max(len(FORMS[code]) for code in range(0x30000)) == LONGEST_FORM


def test_editions_of_one_text_are_equal() -> None:
    typeset = "“Well,” said he\u00a0— ‘it’s cœur…’\nand\tcafe\u0301 co\u00adop"
    typed = "\"Well,\" said he -- 'it's cœur...' and café coop"
    assert normalised(typeset) == normalised(typed)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_tensors_follow_plain_python_token_by_token(data) -> None:  # type: ignore[no-untyped-def]
    """Characters, completion, least distances and distances of ended answers, for any pieces of UTF-8."""
    pieces: list[bytes | None] = [*pieces_of_bytes(data.draw, 7), None]
    texts = TokenTexts.of(pieces)
    budget = data.draw(st.integers(0, 5))
    rule = TextDistance(budget, texts, longest=30)
    targets = data.draw(st.lists(TARGETS, min_size=1, max_size=3))
    padded = rule.pad([[ord(one) for one in target] for target in targets], 9)
    beams = 2
    answers: list[list[list[int]]] = [[[] for _ in range(beams)] for _ in targets]
    state = rule.initial().expand(len(targets), beams, -1)
    every = torch.arange(len(pieces)).expand(len(targets), beams, -1)
    clock = torch.zeros(len(targets), dtype=torch.int64)
    for _ in range(4):
        advanced = rule.advance(state, every, padded=padded, step=clock, length=clock)
        chosen = data.draw(st.lists(st.integers(0, len(pieces) - 1), min_size=beams, max_size=beams))
        for slot, target in enumerate(targets):
            for beam in range(beams):
                answer = answers[slot][beam]
                ended = plain_text.distance_if_ended(pieces, answer, target)
                assert advanced.if_ended is not None
                assert min(int(advanced.if_ended[slot, beam]), budget + 1) == min(ended, budget + 1)
                for token in range(len(pieces)):
                    longer = [*answer, token]
                    assert bool(advanced.is_complete[slot, beam, token]) == plain_text.is_complete(
                        pieces, longer, target
                    )
                    least = plain_text.least_distance(pieces, longer, target)
                    assert min(int(advanced.least[slot, beam, token]), budget + 1) == min(least, budget + 1)
                answer.append(chosen[beam])
        places = torch.tensor(chosen).expand(len(targets), -1)[..., None, None].expand(-1, -1, 1, rule.width)
        state = advanced.state.gather(2, places)[:, :, 0]


@given(st.lists(st.one_of(LETTERS.map(str.encode), st.binary(max_size=5)), max_size=6))
def test_the_text_of_tokens_is_that_of_their_bytes(pieces: list[bytes]) -> None:
    texts = TokenTexts.of([*pieces, b"x"])
    assert texts.text(range(len(pieces) + 1)) == (b"".join(pieces) + b"x").decode("utf-8", "replace")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_an_answer_goes_on_behind_what_was_compared(data) -> None:  # type: ignore[no-untyped-def]
    """The rest of an answer, and what further tokens add to it, are those of the whole answer's normal form."""
    pieces: list[bytes | None] = pieces_of_bytes(data.draw, 6)  # type: ignore[assignment]
    budget, target = data.draw(st.integers(0, 5)), data.draw(TARGETS)
    rule = TextDistance(budget, TokenTexts.of(pieces), longest=30)
    answer = data.draw(st.lists(st.integers(0, len(pieces) - 1), min_size=1, max_size=4))
    whole = plain_text.plain_normal_form(plain_text.text_of(pieces, answer))
    assume(whole)
    covered = data.draw(st.integers(1, len(whole)))
    code_points = [ord(one) for one in target]
    begun = rule.behind(covered, answer, code_points)
    said = whole[covered:][: len(target)]
    assert begun.is_complete == (len(said) == len(target))
    assert min(begun.if_ended, budget + 1) == min(plain_text.edit_row(said, target)[-1], budget + 1)
    if begun.is_complete:
        return
    every, clock = torch.arange(len(pieces))[None, None], torch.zeros(1, dtype=torch.int64)
    state = torch.tensor(begun.state, dtype=torch.int16)[None, None]
    advanced = rule.advance(state, every, padded=rule.pad([code_points], 0), step=clock, length=clock)
    for token in range(len(pieces)):
        longer = plain_text.plain_normal_form(plain_text.text_of(pieces, [*answer, token]))[covered:][: len(target)]
        row = plain_text.edit_row(longer, target)
        least = min(edits + max(0, len(longer) - column) for column, edits in enumerate(row))
        expected = row[-1] if len(longer) == len(target) else least
        assert bool(advanced.is_complete[0, 0, token]) == (len(longer) == len(target))
        assert min(int(advanced.least[0, 0, token]), budget + 1) == min(expected, budget + 1)
