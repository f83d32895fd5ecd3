"""`rote audit`: how much of a book a chat endpoint or a local model reproduces at length."""

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rote.corpus.documents import read_documents
from rote.errors import TextError
from rote.longform.ask import RetryPolicy
from rote.longform.budget import Ceilings, Prices
from rote.longform.config_file import read_options
from rote.longform.findings import TrialFinding
from rote.longform.options import AuditOptions, GenerationSettings, Style
from rote.longform.run import AuditResult, AuditRun, run_audit
from rote.models.responder import Responder
from rote.types import Split

_OPTIONS = AuditOptions()
_SETTINGS = GenerationSettings()
_RETRY = RetryPolicy()


def _help(text: str, default: object) -> Any:
    return typer.Option(help=f"{text} Default: {default}.", show_default=False)


def audit(
    model: Annotated[str, typer.Option(help="Name at the endpoint; without --endpoint a local path or hub id.")],
    book: Annotated[Path, typer.Option(help="The reference text. Only its prefix is ever sent.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; the same command again resumes it.")],
    endpoint: Annotated[str | None, typer.Option(help="OpenAI-compatible base URL, such as https://host/v1.")] = None,
    key_variable: Annotated[
        str, typer.Option(help="Environment variable that holds the key; the key itself is never written.")
    ] = "OPENAI_API_KEY",
    config: Annotated[
        Path | None, typer.Option(help="YAML or JSON with options, settings and a sweep of settings.")
    ] = None,
    prefix_words: Annotated[int | None, _help("Words given to the model.", _OPTIONS.prefix_words)] = None,
    target_words: Annotated[int | None, _help("Words phase 1 must find.", _OPTIONS.target_words)] = None,
    seed_start: Annotated[int | None, _help("Character where the seed begins.", _OPTIONS.seed_start)] = None,
    max_turns: Annotated[int | None, _help("Requests of phase 2 per section.", _OPTIONS.max_turns)] = None,
    max_tokens: Annotated[int | None, _help("Tokens per answer of phase 2.", _SETTINGS.max_tokens)] = None,
    temperature: Annotated[float | None, _help("Temperature.", _SETTINGS.temperature)] = None,
    completions: Annotated[int | None, _help("Completions per request.", _OPTIONS.completions)] = None,
    refusal_retries: Annotated[
        int | None, _help("Refusals in a row that are asked again.", _OPTIONS.refusal_retries)
    ] = None,
    history_turns: Annotated[int | None, _help("Exchanges that are sent along.", "all")] = None,
    chapters: Annotated[bool | None, typer.Option("--chapters", help="Seed every chapter by itself.")] = None,
    style: Annotated[str | None, _help("chat, or text for a base model.", _OPTIONS.style)] = None,
    beams: Annotated[int, typer.Option(help="Beam width of a local model.")] = 1,
    context_tokens: Annotated[
        int | None, _help("Tokens of a local model's context to use, prompt and answer.", "what the model takes")
    ] = None,
    device: Annotated[str, typer.Option(help="Device of a local model.")] = "auto",
    max_cost: Annotated[float | None, typer.Option(help="Ceiling in money; needs the prices.")] = None,
    max_tokens_total: Annotated[int | None, typer.Option(help="Ceiling in tokens, prompts included.")] = None,
    price_input: Annotated[float | None, typer.Option(help="Price of a million prompt tokens.")] = None,
    price_cached_input: Annotated[float | None, typer.Option(help="The same, from the endpoint's cache.")] = None,
    price_output: Annotated[float | None, typer.Option(help="Price of a million completion tokens.")] = None,
    attempts: Annotated[int, typer.Option(help="Attempts at one request.")] = _RETRY.attempts,
    timeout_seconds: Annotated[float, typer.Option(help="Longest wait for one answer.")] = 300.0,
    stream: Annotated[bool, typer.Option("--stream", help="Read answers as a stream.")] = False,
    token_parameter: Annotated[
        str, typer.Option(help="Name of the token limit: max_tokens or max_completion_tokens.")
    ] = "max_tokens",
    best_of_n: Annotated[int | None, _help("Perturbed instructions in phase 1; needs --authorisation.", "off")] = None,
    authorisation: Annotated[
        str | None, typer.Option(help="Who permits testing this system with perturbed instructions.")
    ] = None,
    seed: Annotated[int | None, _help("Seed of the perturbations.", _OPTIONS.seed)] = None,
) -> None:
    """Measure how much of a book a model reproduces when it is asked to go on and on."""
    given = {
        "prefix_words": prefix_words,
        "target_words": target_words,
        "seed_start": seed_start,
        "max_turns": max_turns,
        "completions": completions,
        "refusal_retries": refusal_retries,
        "history_turns": history_turns,
        "chapters": chapters,
        "style": style,
        "best_of_n": best_of_n,
        "authorisation": authorisation,
        "seed": seed,
    }
    options = read_options(config, given, settings={"max_tokens": max_tokens, "temperature": temperature})
    documents = read_documents([book], split=Split.TARGET)
    if len(documents) != 1:
        raise TextError(f"{book} holds {len(documents)} texts; give a file with one.")
    run = AuditRun(
        book=documents[0],
        model={"model": model, "endpoint": endpoint},
        options=options,
        out=out,
        prices=Prices(input=price_input, output=price_output, cached_input=price_cached_input),
        ceilings=Ceilings(max_tokens_total=max_tokens_total, max_cost=max_cost),
        retry=RetryPolicy(attempts=attempts),
        command_line=tuple(sys.argv),
    )
    run.check()
    if endpoint is not None:
        responder: Responder = _remote(
            endpoint, model, key_variable, timeout_seconds=timeout_seconds, stream=stream, limit=token_parameter
        )
    else:
        responder, identity = _local(model, options, beams=beams, context_tokens=context_tokens, device=device)
        run = replace(run, model=identity)
    console = Console()
    with console.status("asking …") as status:
        result = run_audit(
            run, responder, on_answer=lambda place, answered: status.update(f"{answered:,} answers, now after {place}")
        )
    show_audit(console, result, out)


def _remote(
    endpoint: str, model: str, key_variable: str, *, timeout_seconds: float, stream: bool, limit: str
) -> Responder:
    from rote.models.chat import ChatResponder, key_from_environment

    key = key_from_environment(key_variable)
    return ChatResponder(
        endpoint, model, key=key, timeout_seconds=timeout_seconds, stream=stream, token_parameter=limit
    )


def _local(
    model: str, options: AuditOptions, *, beams: int, context_tokens: int | None, device: str
) -> tuple[Responder, dict[str, Any]]:
    """A model on this machine, and what tells it from another."""
    from rote.models.hf import load
    from rote.models.local_chat import LocalResponder
    from rote.search.sizing import require_memory

    loaded = load(model, device=device)
    at_once = max(beams, options.completions)
    require_memory(
        at_once * loaded.vocab_size * 16,  # probabilities of the next token, and copies of them
        loaded.device,
        what=f"generating {at_once:,} answers at once",
        advice="lower --beams or --completions",
    )
    responder = LocalResponder(
        loaded, chat=options.style is Style.CHAT, beams=beams, seed=options.seed, context_tokens=context_tokens
    )
    return responder, {"beams": beams, "context_tokens": responder.context_tokens, **asdict(loaded.identity)}


def show_audit(console: Console, result: AuditResult, out: Path) -> None:
    for trial in result.trials:
        _show_trial(console, trial)
    costs = result.costs
    paid, possible = costs["paid_tokens"], costs["possibly_paid_tokens"]
    lines = [
        f"{result.requests:,} requests answered, {result.sent:,} attempts sent by this process",
        f"tokens: {paid['prompt_tokens']:,} in ({paid['cached_prompt_tokens']:,} cached), "
        f"{paid['completion_tokens']:,} out; possibly paid without an answer: "
        f"{possible['prompt_tokens'] + possible['completion_tokens']:,}",
    ]
    if costs["cost_with_cache"] is not None:
        lines.append(f"cost: {costs['cost_with_cache']:.4f} with cache, {costs['cost_without_cache']:.4f} without")
    if result.is_cut_short:
        lines.append("A ceiling ended the audit; raise it and run the same command to go on.")
    lines.append(f"everything is in {out}")
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _show_trial(console: Console, trial: TrialFinding) -> None:
    head = "nothing measured: phase 1 failed" if trial.nv_recall is None else f"nv-recall {trial.nv_recall:.2%}"
    settings = f"max_tokens {trial.settings.max_tokens}, temperature {trial.settings.temperature}"
    console.print(
        f"trial {trial.number} ({settings}): {head}; {trial.matched_words:,} of {trial.book_words:,} words, "
        f"longest block {trial.longest_block:,}",
        highlight=False,
        markup=False,
    )
    for finding in trial.sections:
        outcome = finding.outcome
        console.print(
            f"  {outcome.section.name}: similarity {outcome.similarity:.2f} after {outcome.phase_1_requests} "
            f"requests, {outcome.turns} turns, ended by {outcome.stop.replace('_', ' ')}",
            highlight=False,
            markup=False,
        )
