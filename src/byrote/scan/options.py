"""Shards: a run divided among processes that know nothing of each other.

Which shard a window belongs to follows from its id alone, so every process finds its own windows, in any order.
"""

import dataclasses
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from byrote.errors import ConfigError
from byrote.options import Common, like, option, settle
from byrote.scan.membership import MembershipOptions
from byrote.types import BosRule, DistanceName, DtypeName, RankName, StopRuleName, ViabilityName

if TYPE_CHECKING:
    from byrote.policy import Policy
    from byrote.search.base import Limits, SearchOptions


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `index` of `count`, counted from 0."""

    index: int
    count: int

    def holds(self, window_id: str) -> bool:
        digest = hashlib.blake2b(window_id.encode(), digest_size=8, person=b"byrote shard").digest()
        return int.from_bytes(digest, "big") % self.count == self.index

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(text: str) -> Shard:
    """A shard written as `0/3`."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise ConfigError(f"shard is {text!r}; of three shards the first is 0/3 and the last 2/3.")
    return Shard(int(found[1]), int(found[2]))


MeasureName = Literal["greedy", "verbatim", "near", "membership"]
ScreenName = Literal["auto", "off"]
ExecutorName = Literal["local", "ray"]
CompileName = Literal["auto", "on", "off"]
GreedyName = Literal["decided", "full"]
ClosenessName = Literal["levenshtein", "hamming", "bleu", "characters", "words"]
EstimateName = Literal["auto", "all", "none"]
MEASURES: tuple[MeasureName, ...] = ("greedy", "verbatim", "near")
"""What is measured where nobody says otherwise."""
DialectName = Literal["auto", "vllm", "sglang", "llamacpp"]
ENDPOINT = "endpoint:"
"""A model's name that begins so is the address of a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFields(MembershipOptions):
    """Every field is a flag of `byrote scan` (`--top-k`) and a YAML key (`top_k`) of the same name."""

    model: str = like(
        Common,
        "model",
        help="Model folder, hub id, or endpoint:URL of a server; checkpoints by commas or as a glob, each with a run "
        "folder in --out.",
    )
    text: tuple[str, ...] = like(Common, "text")
    control: tuple[str, ...] = option((), "Control texts the model cannot have seen, like --text.", group="text")
    pairs: tuple[str, ...] = option(
        (), "Pairs of prefix and suffix instead of texts (.jsonl .csv, .npy .bin of token ids, .txt with [[suffix]]).",
        group="text",
    )  # fmt: skip
    out: str = like(Common, "out")
    revision: str | None = like(Common, "revision")
    adapter: str | None = like(Common, "adapter")
    prefix_tokens: int = like(Common, "prefix_tokens")
    suffix_tokens: int = like(Common, "suffix_tokens")
    prefix_room: int | None = option(
        None, "Cut windows with this many prefix tokens and give the model the last of them: runs with the same room "
        "have the same targets after prefixes of any length.",
        group="text", at_least=1, default_words="--prefix-tokens",
    )  # fmt: skip
    suffix_room: int | None = option(
        None, "Cut windows with this many suffix tokens and measure the first of them, likewise.", group="text",
        at_least=1, default_words="--suffix-tokens",
    )  # fmt: skip
    stride_chars: int = like(Common, "stride_chars")
    whole_documents: bool = like(Common, "whole_documents")
    limit: int | None = like(Common, "limit")
    sample: int | None = like(Common, "sample")
    keep_shared: bool = option(
        False, "Count control windows whose passage a target holds too; else they are left out of rates.", group="text"
    )
    seed: int = like(Common, "seed")
    bos: BosRule = like(Common, "bos")
    measures: tuple[MeasureName, ...] = option(
        MEASURES, "What to measure, separated by commas.", group="text", commas=True
    )
    greedy: GreedyName = option(
        "decided",
        "Decode greedy answers until it is decided whether they are within the edit budget, or in full.",
        group="text",
    )
    temperature: float = like(Common, "temperature")
    top_k: int | None = like(Common, "top_k")
    top_p: float | None = like(Common, "top_p")
    sweep: tuple[str, ...] = option(
        (),
        "Further policies scored in the same pass, by commas: k=10, p=0.9, t=0.7, or joined as t=0.7+k=40.",
        group="policy",
        commas=True,
    )
    beam_width: int = option(20, "Beams kept per step.", group="search", at_least=1)
    edit_budget: int = option(
        5, "Edits within which a continuation counts as near-verbatim (ε).", group="search", at_least=0
    )
    distance: DistanceName = option("levenshtein", "Token distance; none is the baseline search.", group="search")
    viability: ViabilityName = option("exact", "Pruning rule: exact, or the published weaker one.", group="search")
    pin: bool = option(
        True, "Keep the verbatim path as an extra beam, so that the lower bound includes it.", group="search"
    )
    negligible: float = option(
        1e-10, "Bank beams lighter than this instead of searching them; 0 searches all.", group="search",
        at_least=0, below=1,
    )  # fmt: skip
    threshold: float = option(
        0.001, "Probability from which a window counts as extractable (τ).", group="search", above=0, at_most=1
    )
    stop_rule: StopRuleName | Literal["off"] = option(
        "mass", "When to stop a search early: once the verdict is decided (mass), when the best beam is below τ/Bk "
        "(published), or never (off).", group="search",
    )  # fmt: skip
    rank: RankName = option(
        "mass", "What ranks beams: mass, or screen_score (mass × screen score of what is left).", group="search"
    )
    max_children: int | None = option(
        1024,
        "Without --top-k, list at most this many children per beam; the mass of the rest stays open to the end.",
        group="search",
        at_least=1,
    )
    screen: ScreenName = option(
        "auto", "Search only windows whose teacher-forced rating reaches the floor (auto), or all (off).",
        group="screen",
    )  # fmt: skip
    screen_floor: float = option(1e-6, "Rating from which a window is searched.", group="screen", at_least=0, at_most=1)
    screen_share: float = option(
        0.045, "Share of screened windows searched all the same, to audit the screen.", group="screen",
        at_least=0, at_most=1,
    )  # fmt: skip
    screen_least: int = option(
        100, "Raise that share to this many windows of the run, where it would be fewer.", group="screen", at_least=0
    )
    screen_tickets: int = option(
        128, "Samples of a screened window that was searched and not decided.", group="screen", at_least=1
    )
    screen_sampled: float | None = option(
        None, "Share of screened windows that are so sampled.", group="screen", at_least=0, at_most=1,
        default_words="what makes about a hundred",
    )  # fmt: skip
    keep: int = option(3, "Accepted continuations stored per window, heaviest first.", group="search", at_least=0)
    posthoc: tuple[ClosenessName, ...] = option(
        (),
        "Judge what the baseline search (--distance none) returned by these metrics too, separated by commas.",
        group="search",
        commas=True,
    )
    bleu_threshold: float = option(
        0.75, "BLEU from which --posthoc bleu counts a text as near.", group="search", at_least=0, at_most=1
    )
    closure: int = option(
        0, "Close up to this many pruned nodes per window that have one viable completion left.", group="estimates",
        at_least=0,
    )  # fmt: skip
    verify: bool = option(
        False,
        "Score accepted continuations again in float32 and report the shift. Costs a pass per searched window.",
        group="estimates",
    )
    self_check: int = option(
        0,
        "Search N windows alone and in a batch, and report how far numbers move. Costs three searches of each.",
        group="estimates",
        at_least=0,
    )
    estimate: EstimateName = option(
        "auto", "Sample what a search left open: of windows it did not decide (auto), of all searched, or of none.",
        group="estimates",
    )  # fmt: skip
    residual: int | None = option(
        None, "Token evaluations spent on each estimate.", group="estimates", at_least=1,
        default_words="about half of a search's",
    )  # fmt: skip
    residual_error: float | None = option(
        None, "Draw no more samples than bring the relative standard error down to this.", group="estimates", above=0
    )
    refine: int = option(
        0, "Token evaluations per window spent on refining undecided windows.", group="estimates", at_least=0
    )
    max_seconds: float | None = option(
        None, "Begin no window after this many seconds; what was begun is finished. Windows then come in random order.",
        group="budget", above=0, default_words="no limit",
    )  # fmt: skip
    max_evals: int | None = option(
        None, "Begin no window after this many token evaluations, likewise.", group="budget", at_least=1,
        default_words="no limit",
    )  # fmt: skip
    device: str = like(Common, "device")
    dtype: DtypeName = like(Common, "dtype")
    slots: int | None = option(
        None, "Windows searched at once.", group="machine", at_least=1, default_words="by the free memory"
    )
    batch_windows: int | None = option(
        None, "Windows per forward of the first pass; by default what suits the device.", group="machine", at_least=1
    )
    part_windows: int = option(
        256,
        "Windows per part written, more in a long run; at most one part is measured again after a kill.",
        group="machine",
        at_least=1,
    )
    compile: CompileName = option(
        "auto", "Compile the model's layers: where it pays (a GPU and a long scan), always, or never.", group="machine"
    )

    tokenizer: str | None = option(None, "Folder of the served model's tokenizer.", group="endpoint", is_path=True)
    served_model: str | None = option(
        None, "Name of the model at the server.", group="endpoint", default_words="its only one"
    )
    dialect: DialectName = option("auto", "Kind of server; auto asks it.", group="endpoint")
    logprobs: int | None = option(
        None, "Tokens that the server is asked to list for each place; fewer than --top-k leaves mass open.",
        group="endpoint", at_least=1, default_words="as many as --top-k, or the most it gives",
    )  # fmt: skip
    concurrency: int = option(8, "Requests under way at once.", group="endpoint", at_least=1, at_most=256)
    ask_twice: int = option(
        4, "Windows that are asked about a second time, one prompt a request, to see whether numbers move.",
        group="endpoint", at_least=0,
    )  # fmt: skip
    key_variable: str = like(Common, "key_variable")
    attempts: int = like(Common, "attempts")
    timeout_seconds: float = like(Common, "timeout_seconds")
    max_requests: int | None = like(Common, "max_requests")
    max_tokens_total: int | None = like(Common, "max_tokens_total")
    executor: ExecutorName = option(
        "local", "Who measures: this process (local), or workers of a Ray cluster (ray).", group="machine"
    )
    workers: int = option(1, "Ray workers, each with a copy of the model.", group="machine", at_least=1)
    gpus_per_worker: float = option(
        1.0, "GPUs of a Ray worker; 0 measures on CPUs, one a worker.", group="machine", at_least=0
    )
    address: str | None = option(
        None, "Ray cluster to use; auto finds the one that this machine belongs to.", group="machine",
        default_words="Ray is started on this machine",
    )  # fmt: skip
    shard: str | None = option(
        None, "Measure one share of the windows, 0/3 … 2/3 for three; `byrote merge` makes a run of all shares.",
        group="machine", default_words="all windows",
    )  # fmt: skip


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
    """Options of `byrote scan`."""

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
        from byrote.policy import Policy

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
        from byrote.search.base import Limits

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
        from byrote.search.base import SearchOptions

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
    from byrote.policy import Policy

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
