"""Scans of a served model: connecting, the cache of answers in the run folder, the repeat check, and the manifest's
section about all that."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from byrote.corpus.pairs import Pair
from byrote.corpus.read import Document
from byrote.errors import ConfigError
from byrote.models.base import LanguageModel
from byrote.models.listed import ListedModel
from byrote.models.served.check import RepeatCheck
from byrote.models.served.client import RequestLimits, credentials_for
from byrote.models.served.model import EndpointModel, connect
from byrote.models.served.retries import RetryPolicy
from byrote.models.vllm import VllmModel
from byrote.policy import Policy
from byrote.random_order import sample_key
from byrote.scan.options import ENDPOINT, MEASURES, RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.store.folder import RunFolder
from byrote.store.journal import AnswerFile, RequestCountFile
from byrote.store.read import read_run
from byrote.store.resume import RunSession
from byrote.types import StopReason, Window

UNTRUNCATED_LIST = 128
"""Tokens listed where the policy keeps all."""
LIFTED = "give --set logprobs={needed}"
"""What makes vLLM in this process list more."""
ROUNDING_SHIFT = 1e-3
"""Change of a log-probability, in nat, that float32 arithmetic in another order does not reach."""
ROUND_TRIP_CHARACTERS = 400
ROUND_TRIP_TEXTS = 8


def connect_for(
    config: RunConfig, given: Sequence[Document | Pair], *, fresh: bool = False
) -> tuple[EndpointModel, RunConfig]:
    """The served model that `config` names, and the options with the number of tokens that its server lists. Ceilings
    count what earlier openings of the run have sent, unless it is started over."""
    _require_measurable(config)
    url, option = config.model.removeprefix(ENDPOINT), f"--model {ENDPOINT}URL"
    key = credentials_for(url, config.key_variable, option=option, over_http=config.key_over_http)
    # The beginnings of some texts, on which both tokenizers must agree.
    texts = [one.text[:ROUND_TRIP_CHARACTERS] for one in given[:ROUND_TRIP_TEXTS] if isinstance(one, Document)]
    with ExitStack() as on_error:
        sent = RequestCountFile.open(RunFolder(Path(config.out)), fresh=fresh)
        on_error.callback(sent.close)
        model = connect(
            config.model,
            key=key,
            policy=config.policy,
            tokenizer=config.tokenizer,
            served_model=config.served_model,
            dialect=config.dialect,
            listed=_listed(config),
            limits=RequestLimits(
                concurrency=config.concurrency,
                requests_per_minute=config.requests_per_minute,
                timeout_seconds=config.timeout_seconds,
                retry=RetryPolicy(attempts=config.attempts),
                max_requests=config.max_requests,
                max_tokens=config.max_tokens_total,
            ),
            texts=[text for text in texts if text],
            sent=sent,
        )
        on_error.callback(model.close)
        known = _with_listed(config, model, lifted=model.client.dialect.lifts_cap)
        on_error.pop_all()
    return model, known


def with_listing(model: LanguageModel, config: RunConfig) -> tuple[LanguageModel, RunConfig]:
    """A model inside vLLM, told how many tokens to list, with the options that hold their number; any other as it is.
    A vocabulary that is listed whole is no list."""
    if not isinstance(model, VllmModel):
        return model, config
    listing = model.listing(config.policy, _listed(config))
    if listing.listed_tokens == listing.vocab_size:
        return listing, replace(config, logprobs=None)
    _require_measurable(config)
    return listing, _with_listed(config, listing, lifted=LIFTED)


def _listed(config: RunConfig) -> int:
    """How many tokens to ask for."""
    return config.logprobs or max(policy.top_k or UNTRUNCATED_LIST for policy in config.scored_policies)


def _with_listed(config: RunConfig, model: ListedModel, *, lifted: str) -> RunConfig:
    """The options with the number of tokens that `model` lists. Sampling needs all tokens that the policy keeps."""
    known = replace(config, logprobs=model.listed_tokens)
    _require_listed(known, model, lifted)
    return replace(known, estimate="off") if known.is_capped else known


def _require_measurable(config: RunConfig) -> None:
    """Refuse what needs the weights, or more of a distribution than is listed."""
    if config.verify or (config.self_check and config.is_in_vllm):
        raise ConfigError(f"{'verify' if config.verify else 'self_check'} needs the weights; leave it out.")
    if other := [name for name in config.measures if name not in MEASURES]:
        raise ConfigError(f"{other[0]} needs whole distributions, and a server lists its most likely tokens only.")
    for policy in config.scored_policies:
        if policy.top_p is not None and policy.top_p < 1 and policy.top_k is None:
            raise ConfigError(
                f"top-p {policy.top_p:g} without a top-k needs the whole distribution, and a server lists its most "
                "likely tokens only; give --top-k too."
            )


def _require_listed(config: RunConfig, model: ListedModel, lifted: str) -> None:
    """Refuse what needs more tokens than `model` lists; `lifted` is what makes it list more, in words."""
    for text, policy in zip(("top-k", *config.sweep), config.scored_policies, strict=False):
        is_known = policy.top_k is not None and policy.top_k <= model.listed_tokens
        if not is_known and (text != "top-k" or policy.top_p not in (None, 1.0)):
            name = policy.describe() if text == "top-k" else f"sweep {text}"
            raise ConfigError(
                f"{name} needs more tokens than the {model.listed_tokens} that are listed; "
                f"leave it out, or {_lifted(lifted, model, policy)}."
            )
    further = config.closure or config.refine or config.residual or config.answers or config.estimate == "all"
    if config.is_capped and further:
        raise ConfigError(
            "closure, refine, residual, answers and estimates need all tokens that the policy keeps, and "
            f"{model.listed_tokens} are listed; leave them out, or {_lifted(lifted, model, config.policy)}."
        )


def _lifted(words: str, model: ListedModel, policy: Policy) -> str:
    return words.format(needed=policy.top_k or model.vocab_size)


class ServedRun:
    """One opening of the run of a served model, and what the manifest holds about it."""

    def __init__(self, model: EndpointModel, answers: AnswerFile, config: RunConfig) -> None:
        self._model, self._answers, self._config = model, answers, config
        self._twice: dict[str, Any] | None = None

    def ask_twice(self, session: RunSession, windows: Sequence[Window]) -> None:
        """The repeat check: measure a sample again from answers of its own, and record how far numbers and verdicts
        moved."""
        config = self._config
        ordered = sorted(windows, key=lambda window: sample_key(window.window_id, config.seed))
        ids = [window.window_id for window in ordered]
        results = read_run(session.path).results.filter(pl.col("window_id").is_in(ids))
        before = {row["window_id"]: row for row in results.to_dicts()}
        # Searched windows first: they have most numbers to compare.
        ordered.sort(key=lambda window: not _was_searched(before[window.window_id]))
        chosen = ordered[: config.ask_twice][::-1]
        if not chosen:
            return
        check = RepeatCheck(self._answers)
        again = []
        for is_searched, measures in ((True, config.measures), (False, ("verbatim",))):
            repeated = replace(config, screen="off", measures=measures, posthoc=(), slots=1)
            pipeline = Pipeline(self._model.with_cache(check), repeated, decode=self._model.decode)
            of_kind = [window for window in chosen if _was_searched(before[window.window_id]) == is_searched]
            again += [measured.row for measured in pipeline.run(of_kind)]
        changed = sum(_verdict(row, config) != _verdict(before[row["window_id"]], config) for row in again)
        self._twice = {
            "windows": len(again),
            "prompts_compared": check.prompts_compared,
            "largest_shift": None if math.isnan(check.largest_shift) else check.largest_shift,
            "lists_changed": check.lists_changed,
            "verdicts_changed": changed,
        }

    def section(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "identity_is_verified": False,
            "requests": self._model.sent.requests,
            "prompt_tokens": self._model.sent.tokens,
            "answers": {"records": self._answers.records, "last_hash": self._answers.last_hash},
            "cap": self._cap(),
            "asked_twice": self._twice,
            "notes": self.notes(),
        }

    def _cap(self) -> dict[str, Any] | None:
        """What the server's short lists cost; None when they are long enough."""
        if not self._config.is_capped:
            return None
        left = self._model.open_shares
        return {
            "listed": self._model.listed_tokens,
            "top_k": self._config.top_k,
            "places": left.places,
            "open_share_mean": None if math.isnan(left.mean) else left.mean,
            "open_share_largest": left.largest,
            "lifted_by": _lifted(self._model.client.dialect.lifts_cap, self._model, self._config.policy),
        }

    def notes(self) -> list[str]:
        """Sentences for the end of the run."""
        notes = []
        if (cap := self._cap()) is not None:
            mean = cap["open_share_mean"]
            wanted = "all tokens" if cap["top_k"] is None else f"the {cap['top_k']} that the policy keeps"
            cost = "" if mean is None else f", which leaves {mean:.2%} of a token's probability open on average"
            notes.append(
                f"The server lists {cap['listed']} tokens of {wanted}{cost}. Bounds are sound, and wider than they "
                f"could be; to narrow them, {cap['lifted_by']}."
            )
            if "near" in self._config.measures:
                notes.append(
                    "No window was estimated by sampling, decided or not: that needs every token that the policy "
                    "keeps. The same setting of the server brings the estimates back."
                )
        if (twice := self._twice) is not None and (
            twice["verdicts_changed"] or (twice["largest_shift"] or 0.0) > ROUNDING_SHIFT
        ):
            notes.append(
                f"Asked twice, the same prompts had log-probabilities up to {twice['largest_shift'] or 0.0:.4f} nat "
                f"apart (rounding stays below {ROUNDING_SHIFT:g}), and {twice['verdicts_changed']} of "
                f"{twice['windows']} verdicts changed: this server's numbers depend on what else it computes."
            )
        return notes


@contextmanager
def remembering(model: LanguageModel, session: RunSession, config: RunConfig) -> Iterator[ServedRun | None]:
    """While this lasts, answers of a served model are kept in the run folder; None for any other model."""
    if not isinstance(model, EndpointModel):
        yield None
        return
    answers = AnswerFile.open(session.answers, session.run_id)
    try:
        session.bind(session.answers)
        model.use_cache(answers)
        yield ServedRun(model, answers, config)
    finally:
        answers.close()


def _was_searched(row: dict[str, Any]) -> bool:
    return row.get("stop_reason") not in (None, StopReason.SCREENED)


def _verdict(row: dict[str, Any], config: RunConfig) -> object:
    """What was decided: by the search, or by p_z alone."""
    return row["verdict"] if _was_searched(row) else row["p_verbatim"] >= config.threshold
