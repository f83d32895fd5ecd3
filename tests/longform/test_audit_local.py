"""The audit against models that run here: one that learned a text by heart, and chat templates."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import typer
from typer.testing import CliRunner

from byrote.cli.commands import audit as audit_command
from byrote.errors import ConfigError, ModelError
from byrote.lab.texts import write_passages
from byrote.lab.train import TrainingPlan, encode_all, train, train_tokenizer
from byrote.longform.loop import Stop
from byrote.longform.options import CONTINUE_PROMPTS, GenerationSettings, Style
from byrote.longform.run import run_audit
from byrote.models.hf.model import load
from byrote.models.local_chat import LocalResponder
from byrote.models.responder import Message, Request
from tests.longform.audits import CountingClock, audit, make_run
from tests.loopback.server import LoopbackServer

COPIES = 150


class Learned(NamedTuple):
    path: Path
    book: str
    control: str


# The book has 455 tokens, the prefix about 36: one answer and six turns of 64 tokens reach its end.
OPTIONS: dict[str, Any] = {
    "first_max_tokens": 64,
    "settings": GenerationSettings(max_tokens=64),
    "max_turns": 6,
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads on a busy machine wait for each other far longer than this small model computes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """A model that read one book 150 times and nothing else; the control is by the same author."""
    passages = write_passages(7, 6, least_words=80)
    book, control = " ".join(passages[:3]), " ".join(passages[3:])
    tokenizer = train_tokenizer([book, control], vocabulary_size=600)
    folder = tmp_path_factory.mktemp("learned")
    plan = TrainingPlan(
        layers=2, width=64, heads=4, feed_forward_width=192, context=128, rows_per_step=4, learning_rate=6e-3, threads=1
    )
    train(plan, encode_all(tokenizer, [book] * COPIES), tokenizer, folder=folder)
    return Learned(folder, book, control)


@pytest.fixture(scope="module")
def base_model(learned: Learned) -> LocalResponder:
    return LocalResponder(load(str(learned.path), device="cpu"), chat=False)


def recovered(text: str, responder: LocalResponder, out: Path) -> tuple[Stop, float | None]:
    run = make_run(text, out, options=OPTIONS | {"style": Style.TEXT})
    (trial,) = run_audit(run, responder, sleep=CountingClock().sleep).trials
    return trial.sections[0].stop, trial.nv_recall


def test_a_base_model_gives_back_the_book_it_learned(
    tmp_path: Path, learned: Learned, base_model: LocalResponder
) -> None:
    _, nv_recall = recovered(learned.book, base_model, tmp_path / "run")
    words = len(learned.book.split())
    assert nv_recall is not None
    assert nv_recall >= 0.95 * (words - 20) / words


def test_a_base_model_fails_phase_1_on_a_text_it_never_saw(
    tmp_path: Path, learned: Learned, base_model: LocalResponder
) -> None:
    assert recovered(learned.control, base_model, tmp_path / "run") == (Stop.PHASE_1_FAILED, None)


def test_beam_continuation_gives_back_the_book_too(
    tmp_path: Path, learned: Learned, base_model: LocalResponder
) -> None:
    beams = LocalResponder(base_model.model, chat=False, beams=3)
    _, nv_recall = recovered(learned.book, beams, tmp_path / "run")
    assert nv_recall is not None
    assert nv_recall >= 0.8


@pytest.mark.parametrize("context", [(), ("--context-tokens", "100")], ids=["default", "given"])
def test_a_local_model_from_the_command_line(tmp_path: Path, learned: Learned, context: tuple[str, ...]) -> None:
    (tmp_path / "book.txt").write_text(learned.book, encoding="utf-8")
    app = typer.Typer()
    app.command()(audit_command)
    arguments = ["--model", str(learned.path), "--book", str(tmp_path / "book.txt"), "--out", str(tmp_path / "run")]
    arguments += ["--style", "text", "--device", "cpu", *context, "--max-tokens", "64"]
    arguments += ["--prefix-words", "20", "--target-words", "20", "--max-turns", "3"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["nv_recall"]["0"] > 0.3
    assert manifest["model"]["context_tokens"] == (100 if context else 128)
    hint = "context: 128 tokens, all that the model takes; where it was trained on shorter sequences, a smaller "
    assert (hint in result.output) == (not context)
    assert len(manifest["model"]["weights_hash"]) == 64


class Served:
    """The base model behind a chat endpoint: it sees the prefix and its own words, never the instructions."""

    def __init__(self, responder: LocalResponder) -> None:
        self.responder = responder

    def __call__(self, body: Mapping[str, Any]) -> list[str]:
        contents = [
            message["content"] for message in body["messages"] if message["content"] != CONTINUE_PROMPTS["plain"]
        ]
        contents[0] = contents[0].split("\n\n", 1)[1]
        text = " ".join(" ".join(contents).split())
        request = Request((Message("user", text),), max_tokens=body["max_tokens"])
        return [self.responder.complete(request, idempotency_key="served").answers[0].text]


def test_the_book_comes_back_through_a_chat_endpoint_with_the_model_behind_it(
    tmp_path: Path, learned: Learned, base_model: LocalResponder
) -> None:
    with LoopbackServer(Served(base_model)) as server:
        found = audit(server, make_run(learned.book, tmp_path / "book", options=OPTIONS))
        asked = len(server.log.bodies)
        control = audit(server, make_run(learned.control, tmp_path / "control", options=OPTIONS))
    nv_recall = found.trials[0].nv_recall
    assert nv_recall is not None
    assert nv_recall >= 0.8
    assert asked == 7
    assert control.trials[0].nv_recall is None
    assert len(server.log.bodies) == asked + 1, "phase 2 is not run for the control"


CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def test_the_chat_template_writes_the_conversation(base_model: LocalResponder) -> None:
    with pytest.raises(ModelError, match="no chat template"):
        LocalResponder(base_model.model, chat=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_model.model.tokenizer, "chat_template", CHAT_TEMPLATE)
        writer = LocalResponder(base_model.model, chat=True).writer
        messages = [Message("user", "the sea"), Message("assistant", "was calm"), Message("user", "go on")]
        ids = writer.prompt(messages, capacity=None, most=None)
    text = base_model.model.tokenizer.decode(ids)
    assert text == "user: the sea\nassistant:was calm\nuser: go on\nassistant:", "as it was when the answer was given"


@pytest.mark.parametrize(
    ("context_tokens", "max_tokens", "prompt_tokens", "answer_tokens"),
    [(None, 30, 98, 30), (None, 500, 64, 64), (40, 30, 20, 20), (4000, 30, 98, 30)],
)
def test_a_long_prompt_is_cut_from_the_left_to_no_less_than_half_of_the_context(
    learned: Learned,
    base_model: LocalResponder,
    context_tokens: int | None,
    max_tokens: int,
    prompt_tokens: int,
    answer_tokens: int,
) -> None:
    responder = LocalResponder(base_model.model, chat=False, context_tokens=context_tokens)
    request = Request((Message("user", learned.book * 2),), max_tokens=max_tokens)
    reply = responder.complete(request, idempotency_key="long")
    assert reply.usage == (prompt_tokens, answer_tokens, 0)
    assert reply.answers[0].finish_reason == "length"


def test_a_short_prompt_leaves_the_rest_of_the_context_to_the_answer(base_model: LocalResponder) -> None:
    reply = base_model.complete(Request((Message("user", "The"),), max_tokens=500), idempotency_key="short")
    assert reply.usage is not None
    assert reply.usage.prompt_tokens + reply.usage.completion_tokens == 128


def test_sampling_repeats_itself_and_gives_as_many_completions_as_asked(base_model: LocalResponder) -> None:
    request = Request((Message("user", "The"),), max_tokens=12, temperature=2.0, completions=3)
    first, second = (base_model.complete(request, idempotency_key=key) for key in ("a", "b"))
    assert first == second
    assert len({answer.text for answer in first.answers}) > 1


def test_what_the_model_cannot_do_is_said(base_model: LocalResponder) -> None:
    prompt = (Message("user", "The"),)
    with pytest.raises(ConfigError, match="2 completions at temperature 0 need as many beams"):
        base_model.complete(Request(prompt, max_tokens=5, completions=2), idempotency_key="x")
    with pytest.raises(ConfigError, match="--context-tokens is 1"):
        LocalResponder(base_model.model, chat=False, context_tokens=1)
    with pytest.raises(ConfigError, match="no frequency or presence penalty"):
        base_model.complete(Request(prompt, max_tokens=5, presence_penalty=0.1), idempotency_key="x")
