"""byrote in Inspect: nv-recall as a scorer, and the two-phase audit of a book as a task.

inspect eval byrote/audit -T book=book.txt -T control=unseen.txt --model PROVIDER/MODEL

Logs hold the prefix that was sent and the answers, not the book; it is read from its file.
"""

import json
from pathlib import Path
from typing import Any

import anyio
from anyio import from_thread, to_thread

from byrote.corpus.read import read_plain_text
from byrote.errors import ConfigError
from byrote.longform.loop import SectionAudit, cut_sections
from byrote.longform.options import AuditOptions, GenerationSettings
from byrote.longform.recall import nv_recall as measure
from byrote.models.responder import Answer, Reply, Request, Usage
from byrote.types import Split

try:
    from inspect_ai import Task, task
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, GenerateConfig, Model, ModelOutput, get_model
    from inspect_ai.scorer import Score, Scorer, Target, grouped, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver
except ImportError as error:
    raise ConfigError("Inspect is not installed; install it with: pip install 'byrote[inspect]'.") from error

BOOK = "book"
"""The sample's file, in its metadata; without it, the target is the text to compare with."""


@scorer(metrics=[mean(), stderr()])
def nv_recall() -> Scorer:
    """The share of the words of the sample's target (or of the file that its metadata names as `book`) that stand,
    near-verbatim and in order, in the answer."""

    async def score(state: TaskState, target: Target) -> Score:
        book = state.metadata.get(BOOK)
        text = target.text if book is None else read_plain_text(book)
        found = await to_thread.run_sync(measure, text, state.output.completion)
        return Score(
            value=found.nv_recall,
            answer=state.output.completion,
            explanation=f"{found.matched_words:,} of {found.book_words:,} words, {found.longest_block:,} in a row",
            metadata={
                "matched_words": found.matched_words,
                "book_words": found.book_words,
                "longest_block": found.longest_block,
                "out_of_order_words": sum(block.matched_words for block in found.out_of_order),
            },
        )

    return score


@task
def audit(
    book: str | list[str],
    control: str | list[str] | None = None,
    prefix_words: int = 50,
    target_words: int = 50,
    similarity: float = 0.6,
    max_turns: int = 300,
    max_tokens: int = 500,
) -> Task:
    """Give a model the beginning of a book, and ask it to continue as long as it does; options as of `byrote audit`.

    Every book is a sample, and so is every control: a book that the model cannot have read. Repeat with epochs.
    """
    options = AuditOptions(
        prefix_words=prefix_words,
        target_words=target_words,
        similarity=similarity,
        max_turns=max_turns,
        settings=GenerationSettings(max_tokens=max_tokens),
    )
    given = [
        (path, split) for split, paths in ((Split.TARGET, book), (Split.CONTROL, control)) for path in _listed(paths)
    ]
    samples = []
    for path, split in given:
        (section,) = cut_sections(read_plain_text(path), options)
        samples.append(Sample(section.prefix, id=Path(path).name, metadata={BOOK: str(path), "split": split.value}))
    metrics = [grouped(mean(), "split", all=False)] if control else None
    return Task(dataset=samples, solver=audit_book(options), scorer=nv_recall(), metrics=metrics, name="audit")


def _listed(paths: str | list[str] | None) -> list[str]:
    return [] if paths is None else [paths] if isinstance(paths, str) else list(paths)


@solver
def audit_book(options: AuditOptions) -> Solver:
    """Both phases of an audit of the file that the sample's metadata names; the answer is all that was generated."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        text = read_plain_text(state.metadata[BOOK])
        (section,) = cut_sections(text, options)
        client = InspectClient(get_model())
        run = SectionAudit(section, client, "audit", options, options.settings, repetition=0)
        await to_thread.run_sync(run.run, text)
        state.output = ModelOutput.from_content(str(state.model), run.generation)
        state.metadata |= {"stop": run.stop.value, "turns": run.turns, "phase_1_similarity": run.similarity}
        return state

    return solve


class InspectClient:
    """The audit's requests to a model of Inspect, which retries, caches and counts them. Called from a thread."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def complete(self, request: Request, *, place: str, wait_seconds: float = 0.0) -> Reply:
        from_thread.run(anyio.sleep, wait_seconds)
        return from_thread.run(self._complete, request)

    async def _complete(self, request: Request) -> Reply:
        kinds = {"user": ChatMessageUser, "assistant": ChatMessageAssistant}
        messages = [kinds[message.role](content=message.content) for message in request.messages]
        config = GenerateConfig(
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            frequency_penalty=request.frequency_penalty,
            presence_penalty=request.presence_penalty,
            num_choices=request.completions if request.completions > 1 else None,
            extra_body=json.loads(request.further_fields) if request.further_fields else None,
        )
        output = await self._model.generate(messages, config=config)
        answers = tuple(Answer(choice.message.text, choice.stop_reason) for choice in output.choices)
        return Reply(answers or (Answer("", output.stop_reason),), _usage(output))


def _usage(output: ModelOutput) -> Usage | None:
    counted: Any = output.usage
    return None if counted is None else Usage(counted.input_tokens, counted.output_tokens)
