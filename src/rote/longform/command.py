"""An audit as a user describes it, for the command line and for Python: who is asked about which book, at what cost."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rote.corpus.documents import read_documents
from rote.errors import TextError
from rote.longform.options import AuditOptions, Style
from rote.options import Settled, like, option, required
from rote.options.common import Common
from rote.types import Split

if TYPE_CHECKING:  # `rote audit --help` waits for none of these
    from rote.longform.run import AuditResult, AuditRun
    from rote.models.responder import Responder


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCommand(Settled):
    """Who is asked about which book, and what it may cost."""

    model: str = required("Name at the endpoint; without --endpoint a local path or hub id.", group="text")
    book: Path = required("The reference text. Only its prefix is ever sent.", group="text")
    out: Path = required("Folder of the run; the same command again resumes it.", group="text")
    control: tuple[Path, ...] = option(
        (), "A book that the model cannot have read, asked for in the same way; may be repeated.", group="text"
    )
    endpoint: str | None = option(None, "OpenAI-compatible base URL, such as https://host/v1.", group="endpoint")
    key_variable: str = like(Common, "key_variable")
    attempts: int = like(Common, "attempts")
    timeout_seconds: float = like(Common, "timeout_seconds")
    stream: bool = option(False, "Read answers as a stream.", group="endpoint")
    token_parameter: Literal["max_tokens", "max_completion_tokens"] = option(
        "max_tokens", "Name of the token limit at the endpoint.", group="endpoint"
    )
    max_cost: float | None = option(None, "Ceiling in money; needs the prices.", group="budget", at_least=0)
    max_tokens_total: int | None = like(Common, "max_tokens_total")
    max_requests: int | None = like(Common, "max_requests")
    price_input: float | None = option(None, "Price of a million prompt tokens.", group="budget", at_least=0)
    price_cached_input: float | None = option(None, "The same, from the endpoint's cache.", group="budget", at_least=0)
    price_output: float | None = option(None, "Price of a million completion tokens.", group="budget", at_least=0)
    beams: int = option(1, "Beam width of a local model.", group="machine", at_least=1)
    context_tokens: int | None = option(
        None, "Tokens of a local model's context to use, prompt and answer; at best the length it was trained on.",
        group="machine", at_least=1, default_words="what the model takes",
    )  # fmt: skip
    device: str = like(Common, "device", help="Device of a local model.")


def perform_audit(
    command: AuditCommand,
    options: AuditOptions,
    *,
    command_line: tuple[str, ...],
    on_answer: Callable[[str, int], None] = lambda place, answered: None,
) -> "AuditResult":
    """Run or resume the audit in its folder."""
    from rote.longform.run import run_audit

    run = _described(command, options, command_line)
    run.check()
    if command.endpoint is not None:
        responder = _remote(command.endpoint, command)
    else:
        responder, identity = _local(command, options)
        run = replace(run, model=identity)
    with closing(responder):
        return run_audit(run, responder, on_answer=on_answer)


def _described(command: AuditCommand, options: AuditOptions, command_line: tuple[str, ...]) -> "AuditRun":
    from rote.longform.budget import Ceilings, Prices
    from rote.longform.run import AuditRun
    from rote.models.responder import RetryPolicy

    documents = read_documents([command.book], split=Split.TARGET)
    if len(documents) != 1:
        raise TextError(f"{command.book} holds {len(documents)} texts; give a file with one.")
    controls = read_documents(command.control, split=Split.CONTROL) if command.control else []
    return AuditRun(
        book=documents[0].held(),
        controls=tuple(control.held() for control in controls),
        model={"model": command.model, "endpoint": command.endpoint},
        options=options,
        out=command.out,
        prices=Prices(input=command.price_input, output=command.price_output, cached_input=command.price_cached_input),
        ceilings=Ceilings(
            max_tokens_total=command.max_tokens_total, max_cost=command.max_cost, max_requests=command.max_requests
        ),
        retry=RetryPolicy(attempts=command.attempts),
        command_line=command_line,
    )


def _remote(endpoint: str, command: AuditCommand) -> "Responder":
    from rote.models.chat import ChatResponder
    from rote.models.origin import key_from_environment

    return ChatResponder(
        endpoint,
        command.model,
        key=key_from_environment(command.key_variable),
        timeout_seconds=command.timeout_seconds,
        stream=command.stream,
        token_parameter=command.token_parameter,
    )


def _local(command: AuditCommand, options: AuditOptions) -> "tuple[Responder, dict[str, Any]]":
    """A model on this machine, and what tells it from another."""
    from rote.models.hf import load
    from rote.models.local_chat import LocalResponder
    from rote.search.sizing import require_memory

    loaded = load(command.model, device=command.device)
    at_once = max(command.beams, options.completions)
    require_memory(
        at_once * loaded.vocab_size * 16,  # probabilities of the next token, and copies of them
        loaded.device,
        what=f"generating {at_once:,} answers at once",
        advice="lower --beams or --completions",
    )
    responder = LocalResponder(
        loaded,
        chat=options.style is Style.CHAT,
        beams=command.beams,
        seed=options.seed,
        context_tokens=command.context_tokens,
    )
    return responder, {"beams": command.beams, "context_tokens": responder.context_tokens, **asdict(loaded.identity)}
