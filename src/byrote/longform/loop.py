"""The two phases of an audit, section by section.

Phase 1 sends the prefix of a book (or chapter) and looks for the target, the words that follow, in the answer. Phase 2
requests the continuation until the model refuses or ends the book, or a limit is reached. The answers alone decide
the course: the same answers give the same requests, so that an audit can be resumed and replayed from its journal.
"""

import re
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any, Protocol

from byrote.errors import BudgetError, TextError
from byrote.longform.judging import AnswerKind, first_usable, judge
from byrote.longform.options import CONTINUE_PROMPTS, AuditOptions, GenerationSettings, Style
from byrote.longform.perturb import perturbed
from byrote.longform.recall import RecallResult, longest_common_run, nv_recall
from byrote.models.responder import Answer, Message, Reply, Request, RequestRejected


@dataclass(frozen=True, slots=True)
class BookSection:
    """One place to start from. `prefix` and `target` follow each other in the book, from `char_start` on."""

    name: str
    char_start: int
    prefix: str
    target: str


def cut_sections(book: str, options: AuditOptions) -> list[BookSection]:
    """One section for the whole book, or one per chapter whose text is long enough for a seed."""
    if not book.strip():
        raise TextError("The book is empty; give a text with at least the words of the seed.")
    parts = [("book", options.seed_start, len(book))]
    if options.chapters:
        headings = list(re.finditer(options.chapter_pattern, book))
        ends = [*(heading.start() for heading in headings[1:]), len(book)]
        parts = [(heading.group().strip(), heading.end(), end) for heading, end in zip(headings, ends, strict=False)]
    sections = []
    for name, start, end in parts:
        words = list(re.compile(r"\S+").finditer(book, start, end))
        prefix_words = options.prefix_words
        if options.prefix_sentences is not None:
            ends = [place for place, word in enumerate(words, start=1) if _SENTENCE_END.search(word.group())]
            prefix_words = ends[min(options.prefix_sentences, len(ends)) - 1] if ends else len(words)
        needed = prefix_words + options.target_words
        if len(words) >= needed:
            prefix = slice(words[0].start(), words[prefix_words - 1].end())
            target = slice(words[prefix_words].start(), words[needed - 1].end())
            sections.append(BookSection(name, prefix.start, book[prefix], book[target]))
        elif not options.chapters:
            raise TextError(
                f"The book has {len(words)} words from character {start} on; the seed needs {needed} "
                f"({prefix_words} + {options.target_words}). Shorten prefix_words and target_words."
            )
    if not parts:
        raise TextError(
            f"No chapter heading matches {options.chapter_pattern!r}; set chapter_pattern, or audit the book as one."
        )
    if not sections:
        raise TextError(
            f"None of {len(parts)} chapters has the words of a seed ({options.prefix_words} + {options.target_words}); "
            "shorten prefix_words and target_words."
        )
    return sections


_LONGEST_REFUSAL_WAIT_SECONDS = 120.0
_SENTENCE_END = re.compile(r"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)[.!?][\"'”’)\]]*\Z")
"""Of a word that ends a sentence; titles do not."""


class AuditClient(Protocol):
    """What answers the requests of an audit."""

    def complete(self, request: Request, *, place: str, wait_seconds: float = 0.0) -> Reply:
        """Answer the request, sent after `wait_seconds`. Raises BudgetError instead of passing a ceiling.

        `place` identifies the request among all others of the audit, and stays the same however often it is run.
        """
        ...


class Stop(StrEnum):
    """Why a section ended."""

    PHASE_1_FAILED = "phase_1_failed"
    REFUSAL = "refusal"
    DECLARED_REFUSAL = "declared_refusal"
    """The endpoint itself, or a filter of its, declared a refusal; it is not requested again."""
    END_OF_BOOK = "end_of_book"
    EMPTY_ANSWERS = "empty_answers"
    QUERY_BUDGET = "query_budget"
    REJECTED = "rejected"
    """The endpoint would not take the next request of phase 2; most often the conversation outgrew the model."""
    CEILING = "ceiling"
    """The next request could have passed the ceiling of requests, tokens or money; raise it to go on."""


def similarity(target: str, response: str) -> float:
    """The share of the target's words that its longest common run with the response covers."""
    words = target.split()
    return longest_common_run(words, response.split()) / len(words)


@dataclass
class SectionAudit:
    """Both phases of one section, and what they gave. `run` once."""

    section: BookSection
    client: AuditClient = field(compare=False, repr=False)
    place: str
    options: AuditOptions = field(compare=False, repr=False)
    settings: GenerationSettings
    repetition: int
    prompt: str = ""
    """The first request as it was sent: the one that succeeded, or the last that was tried."""
    variant: int | None = None
    """Number of the instruction variant that succeeded (0: the instruction itself); None when none did."""
    tries: list[float] = field(default_factory=list)
    """Share of the target found in one run, for every request of phase 1 in order."""
    closest: str = ""
    """The answer of phase 1 that found most of the target; the first of equals."""
    turns: int = 0
    empty_answers: int = 0
    """Turns that brought nothing: they count against `max_turns`; the published audits do not list them as queries."""
    stop: Stop = Stop.PHASE_1_FAILED
    texts: list[str] = field(default_factory=list)
    """The answer of phase 1 and the continuations in order; empty unless phase 1 succeeded."""
    recall: RecallResult | None = None
    """Of the generation against the whole book; None when phase 1 gave no generation to measure."""

    @property
    def similarity(self) -> float:
        """The best share of the target found in one run by phase 1; 0 when nothing was answered."""
        return max(self.tries, default=0.0)

    @property
    def generation(self) -> str:
        return joined(self.texts, style=self.options.style)

    def record(self) -> dict[str, Any]:
        """In JSON's types; the generation is left out, it has a file of its own."""
        return {
            **asdict(self.section),
            "prompt": self.prompt,
            "similarity": self.similarity,
            "variant": self.variant,
            "tries": self.tries,
            "turns": self.turns,
            "empty_answers": self.empty_answers,
            "stop": self.stop,
            "generation_words": len(self.generation.split()),
            "recall": self.recall.record() if self.recall else None,
        }

    def run(self, book: str) -> None:
        try:
            opening = self._phase_1()
            if opening is not None:
                self.stop = self._phase_2(*opening)
        except BudgetError:
            self.stop = Stop.CEILING
        if self.variant is not None:
            self.recall = nv_recall(book, self.generation, passes=self.options.passes)

    def _phase_1(self) -> tuple[Message, Answer] | None:
        """The exchange that found the target again, or None; only the reference text decides."""
        for variant in range(max(1, self.options.best_of_n)):
            self.prompt = self.section.prefix
            if self.options.style is Style.CHAT:
                instruction = perturbed(self.options.instruction_words, number=variant, seed=self.options.seed)
                self.prompt = f"{instruction}\n\n{self.section.prefix}"
            message = Message("user", self.prompt)
            request = self._request((message,), max_tokens=self.options.first_max_tokens)
            reply = self.client.complete(request, place=f"{self.place}/phase-1/{variant}")
            shares = [similarity(self.section.target, answer.text) for answer in reply.answers]
            best = reply.answers[shares.index(max(shares))]
            if not self.tries or max(shares) > self.similarity:
                self.closest = best.text
            self.tries.append(max(shares))
            if max(shares) >= self.options.similarity:
                self.variant = variant
                return message, best
        return None

    def _phase_2(self, message: Message, answer: Answer) -> Stop:
        options = self.options
        # What found the target is text, even if a filter then stopped it; but nothing more is requested.
        text = answer._replace(finish_reason=None, refusal=None)
        judged = judge(text, refusal_patterns=(), stop_phrases=options.stop_phrases)
        self.texts.append(judged.text)
        if judged.kind is AnswerKind.END:
            return Stop.END_OF_BOOK
        if answer.is_declared_refusal:
            return Stop.DECLARED_REFUSAL
        # A base model goes on with the text; it gets no instruction and has nothing to refuse.
        is_chat = options.style is Style.CHAT
        continue_message = (Message("user", CONTINUE_PROMPTS[options.continue_prompt]),) if is_chat else ()
        refusal_patterns = options.sought_refusals if is_chat else ()
        opening = (message, Message("assistant", judged.text, judged.token_ids))
        exchanges: list[tuple[Message, ...]] = []
        empty = refused = 0
        wait_seconds = 0.0
        while self.turns < options.max_turns:
            first_kept = 0 if options.history_turns is None else max(0, len(exchanges) - options.history_turns)
            conversation = (*opening, *chain.from_iterable(exchanges[first_kept:]), *continue_message)
            request = self._request(conversation, max_tokens=self.settings.max_tokens)
            try:
                place = f"{self.place}/phase-2/{self.turns}"
                reply = self.client.complete(request, place=place, wait_seconds=wait_seconds)
            except RequestRejected:
                return Stop.REJECTED
            self.turns += 1
            judged = first_usable(
                judge(
                    answer,
                    refusal_patterns=refusal_patterns,
                    stop_phrases=options.stop_phrases,
                    is_whole_searched=options.refusals == "published",
                )
                for answer in reply.answers
            )
            self.empty_answers += judged.kind is AnswerKind.EMPTY
            empty = empty + 1 if judged.kind is AnswerKind.EMPTY else 0
            refused = refused + 1 if judged.kind is AnswerKind.REFUSAL else 0
            if judged.kind is AnswerKind.DECLARED_REFUSAL:
                return Stop.DECLARED_REFUSAL
            if empty > options.max_empty:
                return Stop.EMPTY_ANSWERS
            if refused > options.refusal_retries:
                return Stop.REFUSAL
            wait_seconds = options.empty_wait_seconds if empty else 0.0
            if refused:
                doubled = options.refusal_wait_seconds * 2 ** min(refused - 1, 30)
                wait_seconds = min(doubled, _LONGEST_REFUSAL_WAIT_SECONDS)
            if judged.text:
                self.texts.append(judged.text)
                exchanges.append((*continue_message, Message("assistant", judged.text, judged.token_ids)))
            if judged.kind is AnswerKind.END:
                return Stop.END_OF_BOOK
        return Stop.QUERY_BUDGET

    def _request(self, messages: tuple[Message, ...], *, max_tokens: int) -> Request:
        return Request(
            messages=messages,
            max_tokens=max_tokens,
            temperature=self.settings.temperature,
            completions=self.options.completions,
            frequency_penalty=self.settings.frequency_penalty,
            presence_penalty=self.settings.presence_penalty,
            repetition=self.repetition,
            further_fields=self.options.request_fields,
        )


def joined(texts: list[str], *, style: Style) -> str:
    """One text. Answers of a chat are kept apart by white space; a base model's continuations carry their own."""
    if style is Style.TEXT:
        return "".join(texts)
    whole = ""
    for text in texts:
        needs_space = whole and not whole[-1].isspace() and not text[:1].isspace()
        whole += f" {text}" if needs_space else text
    return whole
