"""`byrote mc`: plain samples of a few windows of a scan; with `out`, as a run of its own kind."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from byrote.corpus.read import Document
from byrote.distance.text import TextDistance
from byrote.errors import RunError
from byrote.explore.monte_carlo import MonteCarloOptions, MonteCarloResult, sample_windows
from byrote.models.base import LanguageModel
from byrote.models.load import open_model
from byrote.models.prompts import make_prompt
from byrote.models.vllm import VllmModel
from byrote.scan.options import PLAIN, McOptions, RunConfig
from byrote.scan.source import fitted, prompt_windows
from byrote.stats.intervals import INTERVALS
from byrote.store.columns import COST_COLUMNS, PROMPT_COLUMNS, WINDOW_COLUMNS, Column, Schema, window_of, window_row
from byrote.store.manifest import differences
from byrote.store.read import StoredRun, read_run
from byrote.store.resume import RunSession
from byrote.types import IntervalName, Split

COLUMNS: Schema = (
    *WINDOW_COLUMNS,
    Column("samples", "int64", is_required=True),
    Column("hits", "int64", is_required=True),
    Column("mass", "float64", is_required=True),
    Column("standard_error", "float64"),
    Column("mass_low", "float64", is_required=True),
    Column("mass_high", "float64", is_required=True),
    Column("replicates", "list[float64]", is_required=True),
    Column("curve_samples", "list[float64]", is_required=True),
    Column("curve_hits", "list[float64]", is_required=True),
    Column("curve_evals", "list[float64]", is_required=True),
    Column("certified_lower", "float64"),
    Column("certified_upper", "float64"),
    *COST_COLUMNS,
)


OWN = ("window", "sample", "samples", "replicates", "interval", "seed")
OF_THE_RUN = (
    "unit", "prefix_chars", "suffix_chars", "prefix_tokens", "suffix_tokens", "stride_chars", "bos", "top_k", "top_p",
    "temperature", "edit_budget", "distance",
)  # fmt: skip
"""Options that a run has settled: samples of its windows are drawn as it was measured."""


def sample_to_folder(
    given: McOptions,
    *,
    window_ids: Sequence[str] | None = None,
    model: LanguageModel | None = None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> list[dict[str, Any]]:
    """Rows of the run's windows that the options name, sampled by the run's model as it was measured; into a new folder
    or an unfinished one of the same samples where `out` is given.

    `window_ids` names the windows in place of the options, and `model` is the run's model, loaded already.
    """
    scan = read_run(given.run)
    if scan.kind != "scan":
        raise RunError(f"{given.run} is a {scan.kind} run; byrote mc samples windows of a scan.")
    known = scan.identity["config"]
    name = given.model or str((scan.manifest or {}).get("config", {}).get("model", ""))
    if not name and model is None:
        raise RunError(f"{given.run} is not finished and does not say where its model lies; give --model.")
    settled = {option_name: known[option_name] for option_name in (*OF_THE_RUN, "revision", "dtype")}
    engine_args = tuple((scan.manifest or {}).get("config", {}).get("engine_args", ()))
    pairs = ("those of the run",) if "pairs" in scan.identity else ()  # suffixes have lengths of their own
    config = RunConfig(
        model=name, device=given.device, slots=given.slots, engine_args=engine_args, pairs=pairs, **settled
    )
    chosen = _chosen_rows(scan, given, window_ids)
    model = model or open_model(name, **config.loading)
    if isinstance(model, VllmModel):
        model = model.listing(config.policy)
    places = (f"in {given.run}", "now")
    if found := list(differences(scan.identity["model"], model.described.fingerprint, places=places)):
        raise RunError(
            f"{model.name} has other weights, settings or another tokenizer than the model of {given.run} "
            f"({'; '.join(found)}): samples would say nothing about its bounds. Give the model that the run was made "
            "with."
        )
    prompt = scan.identity.get("prompt")
    if given.prompt not in (None, PLAIN if prompt is None else prompt["name"]):
        chosen, prompt = _prompted(chosen, str(given.prompt), model, scan)
    texts = _texts_of(scan) if config.unit == "text" else {}
    if given.out is None:
        return _sampled(given, config, model, chosen, texts)
    started = time.monotonic()
    settings = {name: getattr(given, name) for name in OWN} | {name: known[name] for name in OF_THE_RUN}
    schema = (*COLUMNS[: len(WINDOW_COLUMNS)], *PROMPT_COLUMNS, *COLUMNS[len(WINDOW_COLUMNS) :]) if prompt else COLUMNS
    identity = {
        "config": settings,
        "model": model.described.fingerprint,
        "windows": [row["window_id"] for row in chosen],
        "scan": scan.run_id,
        **({} if prompt is None else {"prompt": prompt}),
    }
    with RunSession.open(given.out, kind="mc", identity=identity, schema=schema, fresh=fresh) as session:
        if not session.is_complete:
            finished = session.finished_ids()
            missing = [row for row in chosen if row["window_id"] not in finished]
            for row in _sampled(given, config, model, missing, texts):
                session.add(row)
            manifest = {
                "config": settings | {"model": config.model, "scan": str(given.run)},
                "model": asdict(model.identity),
                "prompt": prompt or {"name": PLAIN},
                "device": {"name": str(model.device)},
                "seed": given.seed,
                "command_line": command_line,
                "timings": {"measuring_seconds": time.monotonic() - started},
                "totals": {"windows": len(chosen), "samples": given.samples * len(chosen)},
            }
            session.complete(manifest)
    return read_run(given.out).results.to_dicts()


def _prompted(
    chosen: Sequence[Mapping[str, Any]], name: str, model: LanguageModel, scan: StoredRun
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The rows with another prompt around their prefixes, and what is known of it. What the run measured with its own
    prompt is left out: it is about another question."""
    if "prompt" in scan.identity:
        raise RunError(
            f"{scan.path} was measured with the prompt {scan.identity['prompt']['name']}, and its targets may be "
            f"tokenised for it; leave --prompt out, or sample {name} from a plain run of the same windows."
        )
    prompt = make_prompt(name, model.tokenizing, bos_id=model.bos_id(scan.identity["config"]["bos"]))
    windows = [window_of(row) for row in chosen]
    if prompt is not None:
        windows = list(prompt_windows(windows, prompt, _texts_of(scan)))
    return [window_row(window) for window in windows], None if prompt is None else dict(prompt.facts)


def _texts_of(scan: StoredRun) -> dict[tuple[Split, str], Document]:
    kept = () if scan.texts is None else scan.texts.select("split", "name", "text").iter_rows()
    return {(Split(split), own): Document.from_text(own, text, split=Split(split)) for split, own, text in kept}


def _chosen_rows(scan: StoredRun, given: McOptions, window_ids: Sequence[str] | None) -> list[dict[str, Any]]:
    frame = scan.results
    if window_ids is not None:
        frame = frame.filter(frame["window_id"].is_in(list(window_ids)))
    elif given.window is not None:
        frame = frame.filter(frame["window_id"] == given.window)
        if frame.is_empty():
            raise RunError(f"{given.run} has no window {given.window!r}; byrote export lists the ids.")
    elif given.sample is not None and given.sample < len(frame):
        frame = frame.sample(given.sample, seed=given.seed)
    return frame.sort("document", "char_start").to_dicts()


def _sampled(
    given: McOptions,
    config: RunConfig,
    model: LanguageModel,
    chosen: Sequence[Mapping[str, Any]],
    texts: Mapping[tuple[Split, str], Document],
) -> list[dict[str, Any]]:
    """`texts` hold the targets of windows whose answers are compared as text."""
    if not chosen:
        return []
    windows = [window_of(row) for row in chosen]
    if texts:
        windows = [
            replace(one, suffix_text=texts[one.split, one.document].text[one.suffix_char_start : one.char_end])
            for one in windows
        ]
    config = fitted(config, windows)
    viability = config.search_options().make_viability(model)
    text = viability if isinstance(viability, TextDistance) else None
    options = MonteCarloOptions(
        policy=config.policy,
        distance=config.distance,
        edit_budget=config.edits,
        samples=given.samples,
        replicates=given.replicates,
        seed=given.seed,
        text=text,
        stops_when_lost=True,
    )
    results = sample_windows(model, windows, options, slots=config.slots, limits=config.limits)
    by_id = {result.window.window_id: result for result in results}
    return [_row(by_id[row["window_id"]], row, given.interval) for row in chosen]


def _row(result: MonteCarloResult, scanned: Mapping[str, Any], method: IntervalName) -> dict[str, Any]:
    hits, samples, token_evals = result.count
    share = hits / samples
    low, high, *_ = INTERVALS[method](hits, samples)
    has_bounds = "mass_upper" in scanned
    return {
        **window_row(result.window),
        "samples": samples,
        "hits": hits,
        "mass": share,
        # All hits or none: the spread is 0, which is no estimate of the error.
        "standard_error": math.sqrt(share * (1 - share) / (samples - 1)) if 0 < hits < samples else math.nan,
        "mass_low": low,
        "mass_high": high,
        "replicates": list(result.replicates),
        "curve_samples": [float(point.samples) for point in result.curve],
        "curve_hits": [float(point.hits) for point in result.curve],
        "curve_evals": [float(point.token_evals) for point in result.curve],
        "certified_lower": scanned["mass_lower"][-1] if has_bounds else None,
        "certified_upper": scanned["mass_upper"][-1] if has_bounds else None,
        "token_evals": token_evals,
    }
