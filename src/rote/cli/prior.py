"""`rote prior`: memorized, or merely likely?"""

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rote.cli.progress import make_progress
from rote.errors import ConfigError
from rote.prior.options import PriorConfig

_DEFAULTS = PriorConfig(model="-", prior_text=("-",), out="-", text=("-",))


def _option(name: str, text: str, *, flag: str | None = None) -> Any:
    default = getattr(_DEFAULTS, name)
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    words = f"{text} [default: {shown}]" if shown not in (None, "", False) else text
    return typer.Option(*([flag] if flag else []), help=words, show_default=False)


def prior(
    model: Annotated[str, typer.Option(help="Model folder or hub id.")],
    prior_text: Annotated[list[str], typer.Option(help="Reference corpus the prefixes are drawn from.")],
    out: Annotated[str, typer.Option(help="Run folder to write; an unfinished one is resumed.")],
    text: Annotated[list[str] | None, typer.Option(help="Texts whose windows or spans are scored.")] = None,
    pairs: Annotated[str | None, typer.Option(help="JSONL with prefix and suffix (id, kind) instead of texts.")] = None,
    run: Annotated[str | None, typer.Option(help="A scan whose extractable windows are scored instead.")] = None,
    every_window: Annotated[bool, typer.Option("--every-window", help="With --run: all windows.")] = False,
    spans: Annotated[
        str | None, typer.Option(help="Score spans of the texts: auto (identifiers), or a JSONL file.")
    ] = None,
    span_kinds: Annotated[str | None, _option("span_kinds", "Identifiers that auto looks for.")] = None,
    prefix_tokens: Annotated[int, _option("prefix_tokens", "Tokens of every prefix.")] = _DEFAULTS.prefix_tokens,
    suffix_tokens: Annotated[int, _option("suffix_tokens", "Tokens of a window's suffix.")] = _DEFAULTS.suffix_tokens,
    prefix_lengths: Annotated[str | None, typer.Option(help="Further prefix lengths to sweep, like 10,25,100.")] = None,
    stride_chars: Annotated[
        int, _option("stride_chars", "Windows and drawn prefixes start at multiples of this many characters.")
    ] = _DEFAULTS.stride_chars,
    whole_documents: Annotated[
        bool, typer.Option("--whole-documents", help="Only the first tokens of each document.")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="Score only the first N.")] = None,
    sample: Annotated[int | None, typer.Option(help="Score a seeded random sample of N windows.")] = None,
    prior_prefixes: Annotated[
        int, _option("prior_prefixes", "Prefixes drawn per trial (c).")
    ] = _DEFAULTS.prior_prefixes,
    trials: Annotated[int, _option("trials", "Independent trials.")] = _DEFAULTS.trials,
    seed: Annotated[int, _option("seed", "Seed of everything that is drawn.")] = _DEFAULTS.seed,
    least_probability: Annotated[
        float | None, typer.Option(help="m: least P(s|p). Default by suffix length: 0.01 at 4, 0.0001 at 50 tokens.")
    ] = None,
    least_ratio: Annotated[
        float | None, typer.Option(help="n: least ratio. Default: the mean over generic texts, for this model.")
    ] = None,
    generic: Annotated[str | None, typer.Option(help="Your own generic texts, one a line.")] = None,
    temperature: Annotated[float, _option("temperature", "Temperature.")] = _DEFAULTS.temperature,
    top_k: Annotated[int | None, typer.Option(help="Top-k; by default the model's plain probabilities.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus; by default none.")] = None,
    bos: Annotated[str, _option("bos", "Beginning-of-text token: auto, always, never.")] = _DEFAULTS.bos,
    device: Annotated[str, _option("device", "auto, cpu, cuda, cuda:N or map.")] = _DEFAULTS.device,
    dtype: Annotated[str, _option("dtype", "auto, float32, bfloat16, float16.")] = _DEFAULTS.dtype,
    fresh: Annotated[bool, typer.Option("--fresh/--resume", help="Start over instead of resuming.")] = False,
) -> None:
    """Tell memorized suffixes from merely likely ones: P(s|p) against the probability after other prefixes."""
    from rote.prior.run import prior_to_folder

    if bos not in ("auto", "always", "never"):
        raise ConfigError(f"bos is {bos!r}; choose auto, always, never.")
    config = PriorConfig(
        model=model,
        prior_text=tuple(prior_text),
        out=out,
        text=tuple(text or ()),
        pairs=pairs,
        run=run,
        every_window=every_window,
        spans=spans,
        span_kinds=_DEFAULTS.span_kinds if span_kinds is None else tuple(_split(span_kinds)),
        prefix_tokens=prefix_tokens,
        suffix_tokens=suffix_tokens,
        prefix_lengths=_numbers(prefix_lengths),
        stride_chars=stride_chars,
        whole_documents=whole_documents,
        limit=limit,
        sample=sample,
        prior_prefixes=prior_prefixes,
        trials=trials,
        seed=seed,
        least_probability=least_probability,
        least_ratio=least_ratio,
        generic=generic,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        bos=bos,  # type: ignore[arg-type]
        device=device,
        dtype=dtype,
    )
    with make_progress() as progress:
        done = prior_to_folder(config, progress=progress, command_line=sys.argv, fresh=fresh)
    show_prior(done.path)
    if done.was_complete:
        Console(stderr=True).print(f"{done.path} was complete already; --fresh starts over.", soft_wrap=True)


def show_prior(path: Path) -> None:
    """The summary of a finished prior run in the terminal."""
    from rote.store.read import read_run

    manifest = read_run(path).manifest
    assert manifest is not None
    totals = manifest["totals"]
    console = Console()
    console.print(counts_table(totals))
    if merged := totals.get("boundaries_merged"):
        console.print(
            f"In {merged} of them a token reaches over the boundary of prefix and suffix; it counts as suffix whole.",
            highlight=False,
        )
    for length in totals["thresholds"]:
        for tokens, entry in length["by_suffix_tokens"].items():
            n, after = decimal(entry["log_least_ratio"]), length["prefix_tokens"]
            console.print(f"n = {n} for suffixes of {tokens} tokens after {after}", highlight=False)
    for title, rows in totals["examples"].items():
        console.print(f"\n{title.replace('_', ' ')}:", highlight=False)
        for row in rows:
            console.print(f"  {decimal(row['log_ratio']):>9}  {row['suffix_text']!r}", highlight=False, markup=False)
    if "joined" in totals:
        join = totals["joined"]
        share = join["merely_likely_share"]
        console.print(
            f"\nOf {join['scan_extractable']} extractable windows {join['merely_likely']} are merely likely "
            f"({_percent(share)}).",
            highlight=False,
        )
    console.print(f"\nResults and figures: {path}", soft_wrap=True, highlight=False)


def counts_table(totals: dict[str, Any]) -> Table:
    table = Table(
        "suffixes", "scored", "P(s|p) > m", "memorized", "merely likely", "unsettled", "median ratio", box=None
    )
    entries = {**totals["by_kind"], "all": totals["all"]} if len(totals["by_kind"]) > 1 else {"all": totals["all"]}
    for kind, counts in entries.items():
        numbers = (counts[name] for name in ("suffixes", "extractable", "memorized", "merely_likely", "unsettled"))
        table.add_row(kind, *map(str, numbers), decimal(counts["median_log_ratio"]))
    return table


def decimal(log_value: float | str) -> str:
    """exp(log_value) as a person writes it, however large: 3.1, 2.4e+57."""
    value = float(str(log_value).replace("Infinity", "inf"))
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "0"}.get(value, "–")
    power, rest = divmod(value / math.log(10), 1)
    return f"{math.exp(value):.3g}" if -4 <= power < 6 else f"{10**rest:.1f}e{int(power):+d}"


def _percent(share: dict[str, Any]) -> str:
    if isinstance(share["value"], str):
        return "undefined"
    if isinstance(share["low"], str):
        return f"{share['value']:.1%}"
    return f"{share['value']:.1%}, 95 % interval {share['low']:.1%} to {share['high']:.1%}"


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in _split(text or ""))
    except ValueError as error:
        raise ConfigError(f"prefix-lengths is {text!r}; write whole numbers separated by commas.") from error
