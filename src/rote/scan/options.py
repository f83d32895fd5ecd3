"""Options of a scan: what they must satisfy together, and what follows from them."""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from rote.errors import ConfigError
from rote.options import settle
from rote.scan.option_fields import ENDPOINT, MeasureName, ScanFields
from rote.scan.shard import parse_shard

if TYPE_CHECKING:  # `rote scan --help` reads the fields and does not wait for torch
    from rote.policy import Policy
    from rote.search.base import Limits, SearchOptions


NOT_OF_THE_IDENTITY = frozenset({
    "out", "text", "control", "pairs", "model", "reference_model", "adapter", "device", "slots",
    "batch_windows", "part_windows", "self_check", "max_seconds", "max_evals", "compile", "shard", "tokenizer",
    "concurrency", "ask_twice", "key_variable", "attempts", "timeout_seconds", "max_requests", "max_tokens_total",
    "executor", "workers", "gpus_per_worker", "address",
})  # fmt: skip
"""Options that decide where and how a run is measured, not its numbers."""


ASKING_FOR: dict[str, MeasureName] = {
    "sweep": "verbatim", "greedy": "greedy", "verify": "near", "self_check": "near", "closure": "near",
    "refine": "near", "residual": "near", "residual_error": "near", "reference_model": "membership",
}  # fmt: skip
"""Options that are about one measure, and say nothing without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig(ScanFields):
    """Options of `rote scan`."""

    def __post_init__(self) -> None:
        settle(self)
        if self.shard is not None:
            parse_shard(self.shard)
            if self.has_budget:
                raise ConfigError(f"shard is {self.shard}, but a budget stops a whole run; leave out one of them.")
        if self.logprobs is not None and self.model and not self.is_served:
            raise ConfigError(f"logprobs is {self.logprobs}, but {self.model} is no server; leave it out.")
        if self.is_served:
            self._require_servable()
        if self.executor == "ray" and self.self_check:
            raise ConfigError("self-check needs the device of the run; leave it out, or use --executor local.")
        if not self.measures:
            raise ConfigError(
                f"measures is empty; choose among {', '.join(get_args(MeasureName))}, separated by commas."
            )
        self._require_room()
        for text in self.sweep:
            parse_policy(text)
            if self.sweep.count(text) > 1:
                raise ConfigError(f"sweep has {text} {self.sweep.count(text)} times; give every policy once.")
        if "near" in self.measures and not self.pairs and self.edit_budget >= self.suffix_tokens:
            raise ConfigError(
                f"edit-budget is {self.edit_budget}, but everything is within {self.suffix_tokens} edits of a "
                f"suffix of {self.suffix_tokens} tokens; lower it."
            )

    def _require_room(self) -> None:
        for part in ("prefix", "suffix"):
            room, tokens = getattr(self, f"{part}_room"), getattr(self, f"{part}_tokens")
            if room is not None and self.pairs:
                raise ConfigError(f"{part}-room is {room}, but pairs say themselves where they begin; leave it out.")
            if room is not None and room < tokens:
                raise ConfigError(f"{part}-room is {room}, too little for {part}-tokens {tokens}; raise it.")

    def _require_servable(self) -> None:
        """What is said about weights means nothing where a server has them."""
        if self.executor == "ray":
            raise ConfigError(f"{self.model} is a server, and asks for no workers; leave --executor ray out.")
        for name in ("revision", "adapter"):
            if (value := getattr(self, name)) is not None:
                raise ConfigError(
                    f"{name.replace('_', '-')} is {value}, but {self.model} is a server, which has chosen its weights "
                    "and how it computes; leave it out."
                )

    @property
    def has_budget(self) -> bool:
        return self.max_seconds is not None or self.max_evals is not None

    def require_places(self) -> None:
        """A scan into a folder needs a model, texts or pairs, and the folder."""
        for name, example in (("model", "--model FOLDER"), ("out", "--out runs/first")):
            if not getattr(self, name):
                raise ConfigError(f"{name} is missing; give {example}.")
        self.require_use()
        self.require_baseline()

    def require_use(self) -> None:
        """Whatever is asked for about a measure asks for the measure too."""
        for name, measure in ASKING_FOR.items():
            value = getattr(self, name)
            if value and value != "decided" and measure not in self.measures:
                label = name.replace("_", "-")
                told = ",".join(value) if isinstance(value, tuple) else "on" if value is True else value
                raise ConfigError(
                    f"{label} is {told}, but nothing comes of it; add {measure} to --measures, or leave {label} out."
                )
        if self.estimate == "none" and (self.residual or self.residual_error):
            raise ConfigError("estimate is none, but residual is about estimates; leave one of them out.")

    def require_baseline(self) -> None:
        """Continuations are judged afterwards only where nothing was pruned away before."""
        if self.posthoc and (self.distance != "none" or "near" not in self.measures):
            raise ConfigError(
                f"posthoc is {','.join(self.posthoc)}, but it judges what the baseline search returns; "
                "give --distance none, and near among --measures."
            )

    @property
    def policy(self) -> "Policy":
        from rote.policy import Policy

        return Policy(self.temperature, self.top_k, self.top_p)

    @property
    def policies(self) -> "tuple[Policy, ...]":
        """The run's policy, then those of the sweep: all scored in one teacher-forced pass."""
        return (self.policy, *(parse_policy(text) for text in self.sweep))

    @property
    def loading(self) -> dict[str, Any]:
        """How its model is loaded."""
        return {name: getattr(self, name) for name in ("revision", "dtype", "device", "adapter")}

    @property
    def is_served(self) -> bool:
        return self.model.startswith(ENDPOINT)

    @property
    def is_capped(self) -> bool:
        """Whether a server lists fewer tokens than the policy keeps: some mass stays open at every step."""
        return self.logprobs is not None and (self.top_k is None or self.logprobs < self.top_k)

    @property
    def limits(self) -> "Limits":
        from rote.search.base import Limits

        return Limits(self.prefix_tokens, self.suffix_tokens)

    @property
    def needs_frontier(self) -> bool:
        return bool(self.estimate != "none" or self.refine or self.closure)

    @property
    def goes_on_long(self) -> bool:
        """Whether so much is done after a search that it pays to keep what it computed."""
        return bool((self.residual and self.estimate != "none") or self.refine or self.closure)

    @property
    def wants_all_found(self) -> bool:
        """Whether every accepted continuation is looked at again, however few of them are stored."""
        return bool(self.verify or self.posthoc)

    def search_options(self) -> "SearchOptions":
        from rote.search.base import SearchOptions

        # The cap does not depend on what follows the search: a sampled option must not move certified bounds.
        children = None if self.policy.top_k is not None else self.max_children
        return SearchOptions(
            policy=self.policy,
            beam_width=self.beam_width,
            edit_budget=self.edit_budget,
            distance=self.distance,
            viability=self.viability,
            pin_verbatim=self.pin,
            negligible=self.negligible,
            threshold=None if self.stop_rule == "off" else self.threshold,
            stop_rule="mass" if self.stop_rule == "off" else self.stop_rule,
            rank_by=self.rank,
            keep=None if self.wants_all_found else self.keep,
            max_children=self.logprobs if self.is_capped else children,
            record_frontier=self.needs_frontier,
            keep_states=self.goes_on_long,
        )

    def identity(self) -> dict[str, Any]:
        """The options that decide the numbers; a run folder belongs to exactly one such set."""
        return {name: value for name, value in self.as_dict().items() if name not in NOT_OF_THE_IDENTITY}

    def as_dict(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def parse_policy(text: str) -> "Policy":
    """A policy written as `k=40`, `p=0.9`, `t=0.7`, or several joined by `+`."""
    from rote.policy import Policy

    known: dict[str, float] = {}
    for part in text.split("+"):
        name, _, value = part.strip().partition("=")
        try:
            if name not in ("k", "p", "t") or name in known:
                raise ValueError(name)
            known[name] = int(value) if name == "k" else float(value)
        except ValueError as error:
            raise ConfigError(
                f"sweep has {text!r}; write policies as k=10, p=0.9, t=0.7, or joined by + as in t=0.7+k=40."
            ) from error
    top_k = known.get("k")
    return Policy(known.get("t", 1.0), None if top_k is None else int(top_k), known.get("p"))
