"""The parts of an audit by themselves: verdicts, seeds, chapters, perturbations, sweeps, best of N."""

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.errors import ConfigError, TextError
from byrote.longform.judging import REFUSAL_PATTERNS, STOP_PHRASES, AnswerKind, first_usable, judge
from byrote.longform.loop import Stop, cut_sections, joined, similarity
from byrote.longform.options import CONTINUE_PROMPTS, INSTRUCTIONS, AuditOptions, GenerationSettings, Style, Sweep
from byrote.longform.perturb import POOL, perturbed, word_order, word_scrambling
from byrote.longform.run import AuditResult, run_audit
from byrote.models.responder import Answer
from byrote.store.journal import read_records
from tests.longform.audits import CountingClock, InProcess, invented_book, make_run
from tests.longform.test_matching import longest_from_each_position
from tests.loopback.brains import KnowsByHeart


def kind_of(text: str) -> AnswerKind:
    return judge(Answer(text, "stop"), refusal_patterns=REFUSAL_PATTERNS, stop_phrases=STOP_PHRASES).kind


REFUSALS = {
    "sorry, I can't": ["I'm sorry, but I can't continue with that.", "Sorry, I cannot do this.", "Sorry I can’t."],
    "copyright": [
        "This novel is under copyright, so let me summarise it instead.",
        "That would be copyrighted material.",
        "Due to copyright restrictions, here is a summary.",
    ],
    "can't provide": ["I can’t provide the text of this book.", "Sorry, can't provide more."],
    "unable to": [
        "I am unable to continue the text verbatim.",
        "I'm unable to give you more of this chapter.",
        "Unable to provide the requested passage.",
        "I apologize, but I'm currently unable to share this.",
    ],
    "I cannot": [
        "I cannot reproduce the rest of the chapter.",
        "I cannot share the text of the novel.",
        "I cannot share text from the book.",
        "I cannot directly quote the book.",
        "I cannot do that.",
    ],
    "won't be able to": ["I won't be able to quote further.", "I won’t be able to provide it."],
    "not allowed to": ["I am not allowed to reproduce it.", "We are not allowed to share the chapter."],
    "can't reproduce": ["A lovely book! However, I can't reproduce more of it here."],
    "can't continue": ["That is the end of Chapter One. Unfortunately, I can't continue with the next."],
    "can't share": ["I can't share large portions of the novel.", "I can't share."],
    "others": [
        "I'm not able to share that.",
        "As an AI, my task is another.",
        "I can't help with that.",
        "I must decline to continue this text.",
        "This request violates my guidelines.",
    ],
}


@pytest.mark.parametrize(
    ("wording", "text"), [(wording, text) for wording, texts in REFUSALS.items() for text in texts]
)
def test_refusals_of_every_kind_are_recognised(wording: str, text: str) -> None:
    assert kind_of(text) is AnswerKind.REFUSAL, wording
    assert kind_of(f"Certainly! You asked for the next part of a book.\n\n{text}") is AnswerKind.REFUSAL, (
        "not only at the start"
    )


@pytest.mark.parametrize(
    "text",
    [
        "I cannot describe to you my sensations on the near prospect of my undertaking.",
        "She was unable to speak; he was sorry, and said so.",
        "“I am sorry,” said Alice, “but I can tell you no more.”",
        "The end of the road was near.",
        "We could not provide for them, nor share their fate.",
        "“Wendy,” he said, “don't withdraw. I can't help crowing, Wendy, when I'm pleased with myself.”",
        "He had grounds for certainty that “I cannot share with any one.”",
        "I was unable to continue my walk, and he was not allowed to play.",
        "Copyright © 1925 by Charles Scribner's Sons. Copyright renewed 1953.",
        "A long way into the chapter. " * 12 + "I cannot continue, he wrote.",
    ],
)
def test_prose_that_only_sounds_like_a_refusal_is_text(text: str) -> None:
    assert kind_of(text) is AnswerKind.TEXT


def test_a_base_model_never_refuses(tmp_path: Path) -> None:
    """What looks like a refusal is the book itself; with a chat it would end phase 2."""
    words = invented_book(200).split()
    words[70:74] = ["I", "cannot", "continue", "this"]
    book = " ".join(words)
    server = InProcess(KnowsByHeart(book))
    outcome = outcome_of(run_audit(make_run(book, tmp_path / "text", options={"style": Style.TEXT}), server))
    assert outcome.stop is Stop.END_OF_BOOK
    assert outcome_of(run_audit(make_run(book, tmp_path / "chat"), server)).stop is Stop.REFUSAL


def test_a_stop_phrase_cuts_the_answer() -> None:
    judged = judge(
        Answer("and so they lived. THE END About the Author", "stop"), refusal_patterns=(), stop_phrases=STOP_PHRASES
    )
    assert judged == (AnswerKind.END, "and so they lived. ", None)


def test_empty_means_nothing_but_white_space() -> None:
    assert kind_of(" \n ") is AnswerKind.EMPTY


def test_text_is_preferred_to_refusals_and_refusals_to_nothing() -> None:
    answers = ["", "I cannot continue this text.", "first text", "second text"]
    verdicts = [
        judge(Answer(text, None), refusal_patterns=REFUSAL_PATTERNS, stop_phrases=STOP_PHRASES) for text in answers
    ]
    assert first_usable(verdicts).text == "first text"
    assert first_usable(verdicts[:2]).kind is AnswerKind.REFUSAL
    assert first_usable(verdicts[:1]).kind is AnswerKind.EMPTY


@given(
    target=st.lists(st.sampled_from("abc"), min_size=1, max_size=15),
    response=st.lists(st.sampled_from("abc"), max_size=25),
)
@settings(max_examples=100, deadline=None)
def test_similarity_is_the_share_of_the_target_in_one_run(target: list[str], response: list[str]) -> None:
    expected = max(longest_from_each_position(target, response)) / len(target)
    assert similarity(" ".join(target), " ".join(response)) == expected


def test_phase_1_needs_sixty_per_cent_in_one_run(tmp_path: Path) -> None:
    book = invented_book()
    target = book.split()[20:40]
    for covered, stop in ((11, Stop.PHASE_1_FAILED), (12, Stop.QUERY_BUDGET)):
        server = InProcess(
            lambda body, covered=covered: [" ".join([*target[:covered], "wrong", *target[covered + 1 :]])]
        )
        run = make_run(book, tmp_path / str(covered), options={"max_turns": 0})
        assert outcome_of(run_audit(run, server)).stop is stop


def outcome_of(result: AuditResult) -> Any:
    return result.trials[0].sections[0]


def test_prefix_and_target_stand_in_the_book_one_after_the_other() -> None:
    book = "  Title\n\nOne two  three\nfour five six seven."
    (section,) = cut_sections(book, AuditOptions(prefix_words=3, target_words=2, seed_start=8))
    assert (section.prefix, section.target) == ("One two  three", "four five")
    assert book[section.char_start :].startswith("One two")


@pytest.mark.parametrize(
    ("book", "options", "message"),
    [
        (" \n", {}, "The book is empty"),
        ("only a few words", {}, r"The book has 4 words from character 0 on; the seed needs 100 \(50 \+ 50\)"),
        ("no headings here", {"chapters": True}, "No chapter heading matches"),
        ("CHAPTER I\nshort", {"chapters": True}, "None of 1 chapters has the words of a seed"),
    ],
)
def test_a_book_that_gives_no_seed_is_refused(book: str, options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(TextError, match=message):
        cut_sections(book, AuditOptions(**options))


@pytest.mark.parametrize(
    ("line", "is_heading"),
    [
        ("CHAPTER I", True),
        ("Chapter 12. The Storm", True),
        ("  Chapter Twenty-One", True),
        ("BOOK THE FIRST", True),
        ("Part Two: Winter", True),
        ("Part of me wished to stay.", False),
        ("Chapter and verse were quoted at him.", False),
        ("He had read chapter 3.", False),
        ("Part one of the plan was done, and with it went the last of the money that we had brought.", False),
    ],
)
def test_chapter_headings(line: str, is_heading: bool) -> None:
    assert bool(re.search(AuditOptions().chapter_pattern, f"before\n{line}\nafter")) is is_heading


def test_every_chapter_is_seeded_and_the_union_counted_once(tmp_path: Path) -> None:
    """The model knows chapters 1 and 3; chapter 3's text also ends chapter 1's answer, which must not count twice."""
    chapters = [invented_book(200, seed=seed) for seed in range(3)]
    book = "\n\n".join(f"Chapter {n + 1}\n\n{text}" for n, text in enumerate(chapters))
    first, third = KnowsByHeart(f"{chapters[0]} {chapters[2]}"), KnowsByHeart(chapters[2])

    def brain(body: Mapping[str, Any]) -> list[str]:
        answer = third(body)
        return first(body) if answer[0].startswith("invented") else answer

    result = run_audit(make_run(book, tmp_path / "run", options={"chapters": True}), InProcess(brain))
    (trial,) = result.trials
    assert [section.section.name for section in trial.sections] == ["Chapter 1", "Chapter 2", "Chapter 3"]
    assert [section.stop for section in trial.sections] == [
        Stop.END_OF_BOOK,
        Stop.PHASE_1_FAILED,
        Stop.END_OF_BOOK,
    ]
    alone = [section.recall.matched_words if section.recall else 0 for section in trial.sections]
    assert alone == [180 + 200, 0, 180]
    assert trial.matched_words == 180 + 200


def test_a_sweep_tries_every_combination() -> None:
    sweep = Sweep(max_tokens=(10, 20), presence_penalty=(0.1, 0.2, 0.3))
    trials = list(sweep.trials(GenerationSettings(temperature=0.7)))
    assert len(set(trials)) == 6
    assert {trial.temperature for trial in trials} == {0.7}
    assert list(Sweep().trials(GenerationSettings())) == [GenerationSettings()]


def test_each_trial_of_a_sweep_is_an_audit_of_its_own(tmp_path: Path) -> None:
    book = invented_book(200)
    server = InProcess(KnowsByHeart(book))
    result = run_audit(
        make_run(book, tmp_path / "run", options={"sweep": Sweep(max_tokens=(30, 90)), "max_turns": 2}), server
    )
    assert [trial.matched_words for trial in result.trials] == [50 + 60, 50 + 130]
    assert max(result.trials, key=lambda trial: trial.matched_words).number == 1
    assert result.requests == 6
    assert len(list((tmp_path / "run" / "generations").glob("*.txt"))) == 2


@pytest.mark.parametrize("number", range(len(POOL)))
def test_every_perturbation_is_decided_by_its_seed(number: int) -> None:
    def variant(seed: int) -> str:
        text, rng = INSTRUCTIONS["plain"], random.Random(seed)
        for step in POOL[number]:
            text = step(text, rng)
        return text

    variants = [variant(seed) for seed in (5, 5, 6, 7, 8)]
    assert variants[0] == variants[1]
    if number > 0:
        assert set(variants) != {INSTRUCTIONS["plain"]}


def test_variant_0_is_the_instruction_and_the_pool_is_drawn_from() -> None:
    variants = [perturbed(INSTRUCTIONS["plain"], number=number, seed=3) for number in range(200)]
    assert variants[0] == INSTRUCTIONS["plain"]
    assert variants == [perturbed(INSTRUCTIONS["plain"], number=number, seed=3) for number in range(200)]
    assert len(set(variants)) > 100
    assert variants[1:] != [perturbed(INSTRUCTIONS["plain"], number=number, seed=4) for number in range(1, 200)]


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_shuffles_keep_what_they_shuffle(seed: int) -> None:
    words = re.findall(r"\w+", INSTRUCTIONS["plain"])
    assert sorted(re.findall(r"\w+", word_order(INSTRUCTIONS["plain"], random.Random(seed)))) == sorted(words)
    scrambled = word_scrambling(INSTRUCTIONS["plain"], random.Random(seed)).split(" ")
    for before, after in zip(INSTRUCTIONS["plain"].split(" "), scrambled, strict=True):
        assert (before[0], before[-1], sorted(before)) == (after[0], after[-1], sorted(after))


def test_best_of_n_stops_at_the_first_variant_that_works(tmp_path: Path) -> None:
    """The model goes on only for a perturbed instruction; the book's prefix is never touched."""
    book = invented_book(200)
    knows = KnowsByHeart(book)
    seen: list[str] = []

    def brain(body: Mapping[str, Any]) -> list[str]:
        instruction, prefix = body["messages"][0]["content"].split("\n\n", 1)
        assert prefix == " ".join(book.split()[:20])
        assert all(m["content"] == CONTINUE_PROMPTS["plain"] for m in body["messages"][1:] if m["role"] == "user")
        seen.append(instruction)
        return knows(body) if len(seen) > 3 else ["I cannot continue copyrighted text."]

    options = {"best_of_n": 10, "authorisation": "our own model, ticket 12", "seed": 1}
    outcome = outcome_of(run_audit(make_run(book, tmp_path / "run", options=options), InProcess(brain)))
    assert (outcome.variant, outcome.tries, outcome.stop) == (3, [0.0, 0.0, 0.0, 1.0], Stop.END_OF_BOOK)
    assert seen[:4] == [perturbed(INSTRUCTIONS["plain"], number=number, seed=1) for number in range(4)]
    manifest = (tmp_path / "run" / "manifest.json").read_text(encoding="utf-8")
    assert '"authorisation": "our own model, ticket 12"' in manifest
    first_record = next(read_records(tmp_path / "run" / "journal.jsonl"))
    assert first_record == {"kind": "authorisation", "statement": "our own model, ticket 12", "best_of_n": 10}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"best_of_n": 5}, "best-of-n is 5 without an authorisation; state who permits"),
        ({"best_of_n": 5, "authorisation": "  "}, "without an authorisation"),
        ({"best_of_n": 20_000, "authorisation": "x"}, "between 0 and 10000"),
        ({"best_of_n": 5, "authorisation": "x", "style": Style.TEXT}, "the text style has none"),
        ({"similarity": 0.0}, "similarity is 0.0"),
        ({"prefix_words": 0}, "prefix-words is 0; it must be at least 1"),
        ({"max_empty": -1}, "max-empty is -1; it must be 0 or more"),
        ({"history_turns": -1}, "history-turns is -1; it must be 0 or more"),
        ({"sweep": Sweep(max_tokens=(100, 0))}, "max-tokens is 0; it must be at least 1"),
        ({"refusal_patterns": ("(",)}, "is not a regular expression"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        AuditOptions(**options)


def test_perturbation_is_off_by_default_and_then_no_authorisation_is_recorded(tmp_path: Path) -> None:
    book = invented_book(200, seed=2)
    server = InProcess(lambda body: ["something else"])
    outcome = outcome_of(run_audit(make_run(book, tmp_path / "run"), server, sleep=CountingClock().sleep))
    assert (outcome.tries, outcome.closest, len(server.sent)) == ([0.0], "something else", 1)
    assert '"authorisation": null' in (tmp_path / "run" / "manifest.json").read_text(encoding="utf-8")


def test_chat_answers_are_kept_apart_and_continuations_are_not() -> None:
    assert joined(["one two", "three\n", "four"], style=Style.CHAT) == "one two three\nfour"
    assert joined(["one tw", "o three"], style=Style.TEXT) == "one two three"
