"""What a local model said is carried on token by token: no blank, no character and no template is lost on the way."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byrote.errors import ModelError
from byrote.lab.train import train_tokenizer
from byrote.longform.options import GenerationSettings, Style
from byrote.longform.recall import nv_recall
from byrote.longform.run import run_audit
from byrote.models.local_chat import LocalResponder, PromptWriter
from byrote.models.responder import Message, Request
from byrote.store.journal import read_records
from tests.longform.audits import CountingClock, invented_book, make_run
from tests.longform.scripted import Scripted, recites, sentencepiece_like

BOOK = f"{invented_book(300)} and so, café 漢字 – “the end” of it €1 🙂🙂 {invented_book(200, seed=3)}"
TOKENIZER = sentencepiece_like([invented_book(500)])
BOOK_IDS: list[int] = TOKENIZER(BOOK)["input_ids"]


def reciter(**arguments: Any) -> LocalResponder:
    return LocalResponder(Scripted(TOKENIZER, recites(BOOK_IDS), **arguments), chat=False)


def audit_of(responder: LocalResponder, out: Path, *, max_tokens: int) -> Any:
    options = {"style": Style.TEXT, "settings": GenerationSettings(max_tokens=max_tokens), "max_turns": 400}
    run = make_run(BOOK, out, options=options)
    return run_audit(run, responder, sleep=CountingClock().sleep).trials[0].sections[0]


@pytest.mark.parametrize("max_tokens", [60, 17, 7])
def test_a_perfect_reproduction_scores_one(tmp_path: Path, max_tokens: int) -> None:
    """Answers end inside words and inside characters; what they join to is the book, character by character."""
    section = audit_of(reciter(), tmp_path / "run", max_tokens=max_tokens)
    rest = BOOK.removeprefix(section.section.prefix)
    assert section.generation == rest
    assert nv_recall(rest, section.generation).nv_recall == 1.0
    assert section.recall.matched_words == section.recall.book_words - 20


def test_the_next_prompt_is_the_last_one_and_its_answer(tmp_path: Path) -> None:
    responder = reciter()
    audit_of(responder, tmp_path / "run", max_tokens=17)
    prompts = responder.model.prompts  # type: ignore[attr-defined]
    assert len(prompts) > 10
    for before, after in itertools.pairwise(prompts):
        assert after[: len(before)] == before
    assert prompts[-1] == BOOK_IDS[: len(prompts[-1])]


def test_a_prompt_that_outgrows_the_context_keeps_its_beginning(tmp_path: Path) -> None:
    responder = reciter(max_positions=80)
    section = audit_of(responder, tmp_path / "run", max_tokens=17)
    assert section.generation == BOOK.removeprefix(section.section.prefix)
    prompts = responder.model.prompts  # type: ignore[attr-defined]
    assert {prompt[0] for prompt in prompts} == {1}
    assert {len(prompt) for prompt in prompts[-3:]} == {63}


def test_a_resumed_local_audit_goes_on_from_the_same_tokens(tmp_path: Path) -> None:
    whole = audit_of(reciter(), tmp_path / "whole", max_tokens=17)
    responder = reciter()
    run = make_run(
        BOOK,
        tmp_path / "run",
        options={"style": Style.TEXT, "settings": GenerationSettings(max_tokens=17), "max_turns": 4},
    )
    run_audit(run, responder, sleep=CountingClock().sleep)
    section = audit_of(responder, tmp_path / "run", max_tokens=17)
    assert section == whole
    assert responder.model.prompts[-1] == BOOK_IDS[: len(responder.model.prompts[-1])]  # type: ignore[attr-defined]
    answers = [record for record in read_records(tmp_path / "run" / "journal.jsonl") if record["kind"] == "answer"]
    said = [token for answer in answers for token in answer["answers"][0]["token_ids"]]
    assert said == BOOK_IDS[len(BOOK_IDS) - len(said) :]


BYTE_LEVEL = train_tokenizer([invented_book(200)], vocabulary_size=300)


@example(tokenizer=TOKENIZER, cuts={408, 409})
@given(tokenizer=st.sampled_from([TOKENIZER, BYTE_LEVEL]), cuts=st.sets(st.integers(21, 1000), max_size=12))
@settings(max_examples=80, deadline=None)
def test_turns_join_to_the_text_wherever_they_are_cut(tokenizer: Any, cuts: set[int]) -> None:
    ids: list[int] = tokenizer(BOOK)["input_ids"]
    writer = PromptWriter(Scripted(tokenizer, recites(ids)), chat=False)
    places = [20, *sorted(cut for cut in cuts if cut < len(ids)), len(ids)]
    turns = [writer.text_after(ids[:start], ids[start:end]) for start, end in itertools.pairwise(places)]
    assert "".join(turns) == tokenizer.decode(ids).removeprefix(tokenizer.decode(ids[:20]))
    assert BOOK.endswith("".join(turns))


def conversation(exchanges: int, *, words: int = 30) -> tuple[Message, ...]:
    messages = [Message("user", f"Go on.\n\n{invented_book(20)}")]
    for number in range(exchanges):
        text = invented_book(words, seed=number + 1)
        messages += [Message("assistant", text, carried(text)), Message("user", "Continue.")]
    return tuple(messages)


def carried(text: str) -> tuple[int, ...]:
    """As if the model had said it letter by letter: no tokenizer would give these ids."""
    return tuple(TOKENIZER.convert_tokens_to_ids([f"<0x{byte:02X}>" for byte in text.encode()]))


def chat_prompt(messages: tuple[Message, ...], *, room: int | None = None, most: int | None = None) -> list[int]:
    return PromptWriter(Scripted(TOKENIZER, recites(BOOK_IDS)), chat=True).prompt(messages, capacity=room, most=most)


def test_a_conversation_grows_by_the_answer_and_the_template() -> None:
    """Each prompt begins with the one before and the answer as it was given; the template follows."""
    messages = conversation(3)
    for end in (1, 3, 5):
        before, after = chat_prompt(messages[:end]), chat_prompt(messages[: end + 2])
        answer = messages[end].token_ids
        assert answer is not None
        assert after[: len(before) + len(answer)] == [*before, *answer]
        assert TOKENIZER.decode(after[len(before) + len(answer) :]) == "</s><s> [INST] Continue. [/INST]"


def test_the_template_writes_what_it_writes_for_the_text() -> None:
    head = chat_prompt(conversation(0))
    text = TOKENIZER.apply_chat_template(
        [{"role": "user", "content": conversation(0)[0].content}], tokenize=False, add_generation_prompt=True
    )
    assert head == TOKENIZER(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("room", [2000, 1000, 500, 250, 90])
def test_a_long_conversation_loses_its_oldest_exchanges_and_never_its_template(room: int) -> None:
    messages = conversation(6, words=30)
    whole, prompt = chat_prompt(messages), chat_prompt(messages, room=room, most=room)
    head = chat_prompt(messages[:1])
    assert len(prompt) <= room
    assert prompt[: len(head)] == head, "the beginning, the instruction and the prefix stay"
    kept = prompt[len(head) :]
    answer_tail = len(kept) - len(chat_tail())
    assert kept[answer_tail:] == chat_tail()
    if room < len(whole):
        assert len(prompt) > room - 250 or len(prompt) == room, "no more goes than must"
    assert whole[len(whole) - len(kept) :] == kept, "what is kept is the latest"
    openings = [place for place, token in enumerate(prompt) if token == 1]
    assert len(openings) == TOKENIZER.decode(prompt).count("[/INST]")


def chat_tail() -> list[int]:
    messages = conversation(1)
    answer = messages[1].token_ids or ()
    return chat_prompt(messages)[len(chat_prompt(messages[:1])) + len(answer) :]


def test_an_instruction_that_cannot_fit_is_one_sentence() -> None:
    with pytest.raises(ModelError, match=r"take \d+ tokens of the 20 there are for a prompt; shorten --prefix-words"):
        chat_prompt(conversation(2), room=10, most=20)


def test_special_tokens_in_a_text_are_text() -> None:
    """A book that holds `</s>` must not end the conversation, nor the text."""
    text = "before </s> after"
    for chat in (False, True):
        writer = PromptWriter(Scripted(TOKENIZER, recites(BOOK_IDS)), chat=chat)
        prompt = writer.prompt([Message("user", text)], capacity=None, most=None)
        assert 2 not in prompt
        assert text in TOKENIZER.decode(prompt)
        assert prompt.count(1) == 1


def test_a_template_without_earlier_answers_is_refused() -> None:
    tokenizer = sentencepiece_like([invented_book(50)])
    tokenizer.chat_template = "{{ messages[-1]['content'] }}"
    writer = PromptWriter(Scripted(tokenizer, recites([])), chat=True)
    with pytest.raises(ModelError, match="leaves out earlier answers; set history_turns to 0"):
        writer.prompt(conversation(1), capacity=None, most=None)


def test_a_chat_answer_keeps_its_leading_blank_and_all_its_characters() -> None:
    said = TOKENIZER("and so 🙂", add_special_tokens=False)["input_ids"]
    responder = LocalResponder(Scripted(TOKENIZER, lambda prompt: said), chat=True)
    (answer,) = responder.complete(Request(conversation(1), max_tokens=50), idempotency_key="x").answers
    assert answer[:3] == (" and so 🙂", "stop", tuple(said))
    cut = responder.complete(Request(conversation(1), max_tokens=len(said) - 1), idempotency_key="y").answers[0]
    assert cut.text.startswith(" and so ")
    assert cut.finish_reason == "length"
