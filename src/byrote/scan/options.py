"""Options of a scan. A field is declared once: its type, its default, its explanation, and in its metadata whether it
is a flag, whether it decides a run's numbers, whether it cuts windows, and which measure it belongs to.
"""

import dataclasses
import glob
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from byrote.errors import ConfigError
from byrote.normal_form import LONGEST_FORM
from byrote.options import Common, Settled, like, option, options_of, required, settle
from byrote.scan.measures.membership import MembershipOptions
from byrote.scan.row import measure_names
from byrote.types import BosRule, DistanceName, IntervalName, RankName, StopRuleName, UnitName, ViabilityName

if TYPE_CHECKING:  # options are read without waiting for torch
    from byrote.policy import Policy
    from byrote.search.base import Limits, SearchOptions


ScreenName = Literal["auto", "off"]
ExecutorName = Literal["local", "ray"]
CompileName = Literal["auto", "on", "off"]
GreedyName = Literal["decided", "full"]
ClosenessName = Literal["levenshtein", "hamming", "bleu", "characters", "words"]
MEASURES = ("greedy", "verbatim", "near")
"""What is measured by default."""
DialectName = Literal["auto", "vllm", "sglang", "llamacpp"]
UNITS_PER_EDIT = 10
"""The default edit budget has one edit for so many tokens of the suffix, or characters: 5 of 50, 1 of 12, none below
10."""
PLAIN = "plain"
"""The prompt that is the prefix alone."""
ENDPOINT = "endpoint:"
"""A model's name that begins so is the address of a server."""
VLLM = "vllm:"
"""A model's name that begins so is computed by vLLM, in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig(MembershipOptions, Common):
    """Options of `byrote scan`. Every field is a YAML key (`top_k`), and a flag (`--top-k`) or a name for `--set`."""

    model: str = like(
        Common,
        "model",
        help="Model folder, hub id, vllm:FOLDER_OR_ID to have vLLM compute it, or endpoint:URL of a server; "
        "checkpoints by commas or as a glob, each with a run folder in --out.",
    )
    pairs: tuple[str, ...] = option(
        (), "Pairs of prefix and suffix instead of texts (.jsonl .csv, .npy .bin of token ids, .txt with [[suffix]]).",
        group="text", in_identity=False, is_common=True,
    )  # fmt: skip
    unit: UnitName = option(
        "tokens", "What windows and edits are counted in: tokens, or characters of normalised text, which are the same "
        "for every tokenizer.",
        group="text", cuts_windows=True,
    )  # fmt: skip
    prefix_chars: int = option(
        200, "Characters of a prefix, with unit=text.", group="text", at_least=1, is_flag=False, cuts_windows=True
    )
    suffix_chars: int = option(
        200,
        "Characters of a target, likewise.",
        group="text",
        at_least=2,
        at_most=10_000,
        is_flag=False,
        cuts_windows=True,
    )
    cut_prefix_tokens: int | None = option(
        None, "Cut windows with this many prefix tokens and give the model the last of them: runs with the same value "
        "have the same targets after prefixes of any length.",
        group="text", at_least=1, default_words="prefix_tokens", is_flag=False, cuts_windows=True,
    )  # fmt: skip
    cut_suffix_tokens: int | None = option(
        None, "Cut windows with this many suffix tokens and measure the first of them, likewise.", group="text",
        at_least=1, default_words="suffix_tokens", is_flag=False, cuts_windows=True,
    )  # fmt: skip
    keep_shared: bool = option(
        False, "Count control windows whose passage a target holds too; else they are left out of rates.",
        group="text", is_flag=False,
    )  # fmt: skip
    bos: BosRule = like(Common, "bos", is_flag=False)
    prompt: tuple[str, ...] = option(
        (PLAIN,), "What the model is given: the prefix alone (plain), its chat template with the prefix at the start "
        "of the answer (chat) or in the question (ask), or a file; several by commas, each with a run folder.",
        group="text", commas=True, in_identity=False, cuts_windows=True, default_words=PLAIN,
    )  # fmt: skip
    measures: tuple[str, ...] = option(
        MEASURES, "What to measure, separated by commas.", group="text", commas=True, choices=measure_names,
        is_common=True,
    )  # fmt: skip
    greedy: GreedyName = option(
        "decided", "Decode greedy answers until it is decided whether they are within the edit budget, or in full.",
        group="text", is_flag=False, measure="greedy",
    )  # fmt: skip
    answers: int | None = option(
        None, "Answers sampled per window, to check the bounds and to limit what else the model can say.", group="text",
        at_least=0, default_words="2, and 0 for a server",
    )  # fmt: skip
    sweep: tuple[str, ...] = option(
        (), "Further policies scored in the same pass, by commas: k=10, p=0.9, t=0.7, or joined as t=0.7+k=40.",
        group="policy", commas=True, measure="verbatim",
    )  # fmt: skip
    policies: tuple[str, ...] = option(
        (), "Further decoding settings to bound from the same search, written like --sweep; each must keep a part of "
        "what the search keeps: k=10, k=40+p=0.9, t=0.7+k=40.",
        group="policy", commas=True, measure="near",
    )  # fmt: skip
    passage: tuple[int, ...] = option(
        (), "Lengths in tokens, as in 50,100,200,400 (characters with unit text): how likely one answer stays near the "
        "target for so long, in blocks of a suffix, for the windows that are certified.",
        group="search", commas=True, at_least=1, cuts_windows=True, measure="near",
    )  # fmt: skip
    passage_roots: int = option(
        8, "Answers found in each block of a passage that are followed into the next, heaviest first.", group="search",
        at_least=1, is_flag=False, measure="near",
    )  # fmt: skip
    beam_width: int = option(20, "Beams kept per step.", group="search", at_least=1)
    edit_budget: int | None = option(
        None, "Edits (of tokens, or characters with unit text) within which a continuation is near-verbatim (ε).",
        group="search", at_least=0,
        is_common=True, aliases=("--epsilon",),
        default_words="a tenth of the suffix, rounded down; of pairs, of the shortest",
    )  # fmt: skip
    distance: DistanceName = option("levenshtein", "Token distance; none is the baseline search.", group="search")
    viability: ViabilityName = option(
        "exact", "Pruning rule: exact, or the published weaker one.", group="search", is_flag=False
    )
    pin: bool = option(
        True, "Keep the verbatim path as an extra beam, so that the lower bound includes it.", group="search",
        is_flag=False,
    )  # fmt: skip
    negligible: float = option(
        1e-10, "Bank beams lighter than this instead of searching them; 0 searches all.", group="search",
        at_least=0, below=1, is_flag=False,
    )  # fmt: skip
    threshold: float = option(
        0.001, "Probability from which a window counts as extractable (τ).", group="search", above=0, at_most=1,
        is_common=True, aliases=("--tau",),
    )  # fmt: skip
    stop_rule: StopRuleName | Literal["off"] = option(
        "mass", "When to stop a search early: once the verdict is decided (mass), when the best beam is below τ/Bk "
        "(published), or never (off).", group="search", is_flag=False,
    )  # fmt: skip
    rank: RankName = option(
        "mass", "What ranks beams: mass, or screen_score (mass × screen score of what is left).", group="search",
        is_flag=False,
    )  # fmt: skip
    max_children: int | None = option(
        1024, "Without top_k, list at most this many children per beam; the mass of the rest stays open to the end.",
        group="search", at_least=1, is_flag=False,
    )  # fmt: skip
    screen: ScreenName = option(
        "auto", "Search only windows whose teacher-forced screen score reaches the floor (auto), or all (off).",
        group="screen",
    )  # fmt: skip
    screen_floor: float = option(
        1e-6, "Screen score from which a window is searched.", group="screen", at_least=0, at_most=1, is_flag=False
    )
    screen_share: float = option(
        0.045, "Share of screened windows searched all the same, to audit the screen.", group="screen",
        at_least=0, at_most=1, is_flag=False,
    )  # fmt: skip
    screen_min_windows: int | None = option(
        None, "Raise that share to this many windows of the run, where it would be fewer.", group="screen", at_least=0,
        default_words="100, but no more than a tenth of the run", is_flag=False,
    )  # fmt: skip
    keep: int = option(
        3, "Accepted continuations stored per window, heaviest first.", group="search", at_least=0, is_flag=False
    )
    posthoc: tuple[ClosenessName, ...] = option(
        (), "Judge what the baseline search (--distance none) returned by these metrics too, separated by commas.",
        group="search", commas=True, is_flag=False,
    )  # fmt: skip
    bleu_threshold: float = option(
        0.75, "BLEU from which posthoc=bleu counts a text as near.", group="search", at_least=0, at_most=1,
        is_flag=False,
    )  # fmt: skip
    closure: int = option(
        0, "Close up to this many pruned nodes per window that have one viable completion left.", group="estimates",
        at_least=0, is_flag=False, measure="near",
    )  # fmt: skip
    verify: bool = option(
        False, "Score accepted continuations again in float32 and report the shift. Costs a pass per searched window.",
        group="estimates", measure="near",
    )  # fmt: skip
    self_check: int = option(
        0, "Search N windows alone, in a batch and in float32, and report how far numbers move. Costs three searches "
        "of each.", group="estimates", at_least=0, is_flag=False, in_identity=False, measure="near", needs_folder=True,
    )  # fmt: skip
    estimate: str = option(
        "off", "Sample what a search left open: of windows it did not decide (undecided), of all that were searched, "
        "or of about N of these, drawn at random.", group="estimates", measure="near",
    )  # fmt: skip
    estimate_share: float = option(
        1.0, "Share of windows among which estimates are made; a number for --estimate sets it.", group="estimates",
        above=0, at_most=1, is_flag=False,
    )  # fmt: skip
    residual: int | None = option(
        None, "Token evaluations spent on each estimate.", group="estimates", at_least=1,
        default_words="about half of a search's", is_flag=False, measure="near",
    )  # fmt: skip
    residual_error: float | None = option(
        None, "Draw no more samples than bring the relative standard error down to this.", group="estimates", above=0,
        is_flag=False, measure="near",
    )  # fmt: skip
    refine: int = option(
        0, "Token evaluations per window spent on refining undecided windows.", group="estimates", at_least=0,
        measure="near", is_flag=False,
    )  # fmt: skip
    max_seconds: float | None = option(
        None, "Begin no window after this many seconds; what was begun is finished, and is a random sample.",
        group="budget", above=0, default_words="no limit", in_identity=False, needs_folder=True, is_common=True,
    )  # fmt: skip
    max_evals: int | None = option(
        None, "Begin no window after this many token evaluations, likewise.", group="budget", at_least=1,
        default_words="no limit", is_flag=False, in_identity=False, needs_folder=True,
    )  # fmt: skip
    engine_args: tuple[str, ...] = option(
        (), "Arguments of vLLM's engine by commas: tensor_parallel_size=2,gpu_memory_utilization=0.8.", group="machine",
        commas=True, in_identity=False, needs_weights=True,
    )  # fmt: skip
    slots: int | None = option(
        None, "Windows searched at once.", group="machine", at_least=1, default_words="by the free memory",
        is_flag=False, in_identity=False,
    )  # fmt: skip
    windows_per_part: int = option(
        256, "Windows per part written, more in a long run; at most one part is measured again after a kill.",
        group="machine", at_least=1, is_flag=False, in_identity=False,
    )  # fmt: skip
    compile: CompileName = option(
        "auto", "Compile the model's layers: where it pays (a GPU and a long scan), always, or never.",
        group="machine", is_flag=False, in_identity=False,
    )  # fmt: skip
    tokenizer: str | None = option(
        None, "Folder of the served model's tokenizer.", group="endpoint", is_path=True, in_identity=False
    )
    served_model: str | None = option(
        None, "Name of the model at the server.", group="endpoint", default_words="its only one"
    )
    dialect: DialectName = option("auto", "Kind of server; auto asks it.", group="endpoint", is_flag=False)
    logprobs: int | None = option(
        None, "Tokens that a server or vLLM is asked to list for each place; fewer than top_k leaves mass open.",
        group="endpoint", at_least=1, default_words="as many as top_k, or the most it gives", is_flag=False,
    )  # fmt: skip
    concurrency: int = option(
        8,
        "Requests under way at once, at most; a run begins with one.",
        group="endpoint",
        at_least=1,
        at_most=256,
        in_identity=False,
    )
    ask_twice: int = option(
        4, "Windows that are requested a second time, one prompt a request, to see whether numbers move.",
        group="endpoint", at_least=0, is_flag=False, in_identity=False,
    )  # fmt: skip
    attempts: int = like(Common, "attempts", is_flag=False)
    timeout_seconds: float = like(Common, "timeout_seconds", is_flag=False)
    executor: ExecutorName = option(
        "local", "What measures: this process (local), or workers of a Ray cluster (ray).", group="machine",
        in_identity=False,
    )  # fmt: skip
    workers: int = option(
        1, "Ray workers, each with a copy of the model.", group="machine", at_least=1, in_identity=False
    )
    gpus_per_worker: float | None = option(
        None, "GPUs of a Ray worker; 0 measures on CPUs, one a worker.", group="machine", at_least=0,
        default_words="1 where the cluster has GPUs", is_flag=False, in_identity=False,
    )  # fmt: skip
    address: str | None = option(
        None, "Ray cluster to use; auto finds the one that this machine belongs to.", group="machine",
        default_words="Ray is started on this machine", is_flag=False, in_identity=False,
    )  # fmt: skip
    shard: str | None = option(
        None, "Measure one share of the windows, 0/3 … 2/3 for three, or auto: that of the task of a SLURM array; "
        "`byrote merge` makes a run of all shares.",
        group="machine", default_words="all windows", in_identity=False, cuts_windows=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        settle(self)
        if self.shard == "auto":
            object.__setattr__(self, "shard", str(shard_of_array(os.environ)))
        if self.shard is not None:
            parse_shard(self.shard)
            if self.has_budget:
                raise ConfigError(f"shard is {self.shard}, but a budget stops a whole run; leave out one of them.")
        if self.logprobs is not None and self.model and not (self.is_served or self.is_in_vllm):
            raise ConfigError(
                f"logprobs is {self.logprobs}, but {self.model} is neither a server nor in vLLM; leave it out."
            )
        if self.executor == "ray" and self.self_check:
            raise ConfigError("self_check needs the device of the run; leave it out, or use --executor local.")
        if (self.is_served or self.is_in_vllm) and self.executor == "ray":
            what = "is a server and needs no workers" if self.is_served else "has vLLM's own workers"
            raise ConfigError(f"{self.model} {what}; leave --executor ray out.")
        for name, declared in options_of(type(self)).items():
            if self.is_served and declared.spec.needs_weights and getattr(self, name) != declared.default:
                raise ConfigError(
                    f"{declared.label} is {getattr(self, name)}, but {self.model} is a server, which has chosen its "
                    "weights and how it computes; leave it out."
                )
        if not self.prompt or len(set(self.prompt)) < len(self.prompt):
            raise ConfigError(f"prompt is {','.join(self.prompt) or 'empty'}; give every prompt once.")
        if not self.measures:
            raise ConfigError(f"measures is empty; choose among {', '.join(measure_names())}, separated by commas.")
        for part in ("prefix", "suffix"):
            cut, tokens = getattr(self, f"cut_{part}_tokens"), getattr(self, f"{part}_tokens")
            if cut is not None and self.pairs:
                raise ConfigError(f"cut_{part}_tokens is {cut}, but pairs say where they begin; leave it out.")
            if cut is not None and cut < tokens:
                raise ConfigError(f"cut_{part}_tokens is {cut}, too little for {part}-tokens {tokens}; raise it.")
        if self.estimate not in ("off", "undecided", "all") and not re.fullmatch("[1-9][0-9]{0,17}", self.estimate):
            raise ConfigError(f"estimate is {self.estimate!r}; choose off, undecided, all or a number of windows.")
        for name in ("sweep", "policies"):
            for text in (written := getattr(self, name)):
                parse_policy(text, option=name)
                if written.count(text) > 1:
                    raise ConfigError(f"{name} has {text} {written.count(text)} times; give every policy once.")
        if self.policies:
            self._require_bounded()
        if self.passage:
            self._require_blocks()
        if self.unit == "text":
            self._require_text()
        elif "near" in self.measures and not self.pairs and self.edits >= self.suffix_tokens:
            raise ConfigError(
                f"edit-budget is {self.edits}, but everything is within {self.suffix_tokens} edits of a "
                f"suffix of {self.suffix_tokens} tokens; lower it."
            )

    def _require_text(self) -> None:
        """What counts in tokens, or takes every answer for one of T tokens, does not go with text."""
        named = {
            "posthoc": self.posthoc, "verify": self.verify, "closure": self.closure, "refine": self.refine,
            "estimate": self.estimate != "off",
            "distance": self.distance != "levenshtein", "viability": self.viability != "exact",
            "rank": self.rank != "mass", "greedy": self.greedy == "full",
            "the unlearning measure": "unlearning" in self.measures,
        }  # fmt: skip
        for name, is_given in named.items():
            if is_given:
                raise ConfigError(
                    f"unit is text, but {name} is about answers of as many tokens as the target has; leave {name} out, "
                    "or measure --unit tokens."
                )
        if "near" in self.measures and not self.pairs and self.edits >= self.suffix_chars // 2:
            raise ConfigError(
                f"edit-budget is {self.edits} characters, but targets have {self.suffix_chars // 2} to "
                f"{self.suffix_chars}; lower it below {self.suffix_chars // 2}."
            )

    def _require_bounded(self) -> None:
        """The search must visit everything that the further policies can say, and know distances as it goes."""
        from byrote.policy import require_inside

        if self.distance == "none":
            raise ConfigError(
                "policies needs a search that prunes, and the baseline (distance none) measures distances afterwards; "
                "leave one of them out."
            )
        caps = [cap for cap in (self.top_k, self.search_options().max_children) if cap is not None]
        for text, policy in zip(self.policies, self.bounded_policies, strict=True):
            require_inside(policy, self.policy, listed=min(caps, default=None), name=text)

    def _require_blocks(self) -> None:
        """A passage is blocks of a text, one after the other."""
        lengths = ",".join(map(str, self.passage))
        is_rising = self.passage == tuple(sorted(set(self.passage)))
        if not is_rising or any(length % self.suffix_length for length in self.passage):
            name = "suffix_chars" if self.unit == "text" else "suffix-tokens"
            raise ConfigError(f"passage is {lengths}; give rising multiples of {name}, which is {self.suffix_length}.")
        for name, has_none in (("pairs", not self.pairs), ("prompt", self.prompt == (PLAIN,))):
            if not has_none:
                raise ConfigError(f"passage is {lengths}, but needs windows of a text as they stand; leave {name} out.")
        if self.distance == "none":
            raise ConfigError(
                f"passage is {lengths}, but the baseline (distance none) accepts answers at any distance; leave one of "
                "them out."
            )

    @property
    def counted(self) -> str:
        """What lengths and edits are counted in."""
        return "characters" if self.unit == "text" else "tokens"

    @property
    def suffix_length(self) -> int:
        """Tokens of a suffix, or characters at most with unit text."""
        return self.suffix_chars if self.unit == "text" else self.suffix_tokens

    @property
    def passage_blocks(self) -> tuple[int, ...]:
        """Blocks of a passage of each length; the first is the suffix."""
        return tuple(length // self.suffix_length for length in self.passage)

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
        """An option of a measure needs the measure, and windows are chosen in one way."""
        if self.limit is not None and self.sample is not None:
            raise ConfigError(
                f"limit is {self.limit} and sample is {self.sample}; give --limit for the first windows or --sample "
                "for random ones, not both."
            )
        in_tokens = ("prefix_tokens", "suffix_tokens", "cut_prefix_tokens", "cut_suffix_tokens")
        for name in ("prefix_chars", "suffix_chars") if self.unit == "tokens" else in_tokens:
            if getattr(self, name) != options_of(type(self))[name].default:
                raise ConfigError(f"{name} is {getattr(self, name)}, but has no effect with --unit {self.unit}.")
        for name, declared in options_of(type(self)).items():
            value, measure = getattr(self, name), declared.spec.measure
            if measure is not None and value != declared.default and measure not in self.measures:
                shown = ",".join(value) if isinstance(value, tuple) else "on" if value is True else value
                raise ConfigError(
                    f"{declared.label} is {shown}, but has no effect; add {measure} to --measures, or leave "
                    f"{declared.label} out."
                )
        if self.estimate == "off" and (self.residual or self.residual_error):
            raise ConfigError("estimate is off, but residual is about estimates; add --estimate undecided, or all.")

    def require_baseline(self) -> None:
        """Continuations are judged afterwards only where nothing was pruned away before."""
        if self.posthoc and (self.distance != "none" or "near" not in self.measures):
            raise ConfigError(
                f"posthoc is {','.join(self.posthoc)}, but it judges what the baseline search returns; "
                "give --distance none, and near among --measures."
            )
        if "bleu" in self.posthoc and find_spec("sacrebleu") is None:
            raise ConfigError(
                "posthoc holds bleu, which sacrebleu computes, and it is not installed. Install it with: "
                "pip install 'byrote[bleu]'"
            )

    @property
    def policy(self) -> "Policy":
        from byrote.policy import Policy

        return Policy(self.temperature, self.top_k, self.top_p)

    @property
    def bounded_policies(self) -> "tuple[Policy, ...]":
        """Those of `policies`, which the search bounds beside its own."""
        return tuple(map(parse_policy, self.policies))

    @property
    def scored_policies(self) -> "tuple[Policy, ...]":
        """The run's policy, those of the sweep, and those to bound: all scored in one teacher-forced pass."""
        return (self.policy, *map(parse_policy, self.sweep), *self.bounded_policies)

    @property
    def loading(self) -> dict[str, Any]:
        """How its model is loaded."""
        return {name: getattr(self, name) for name in ("revision", "dtype", "device", "adapter", "engine_args")}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The model and the texts."""
        return (self.model, *self.text, *self.control)

    @property
    def is_served(self) -> bool:
        return self.model.startswith(ENDPOINT)

    @property
    def is_in_vllm(self) -> bool:
        return self.model.startswith(VLLM)

    @property
    def is_capped(self) -> bool:
        """Whether a server or vLLM lists fewer tokens than the policy keeps: some mass stays open at every step."""
        return self.logprobs is not None and (self.top_k is None or self.logprobs < self.top_k)

    @property
    def decodes_greedy(self) -> bool:
        return bool({"greedy", "unlearning"} & set(self.measures))

    @property
    def decodes_whole(self) -> bool:
        """Whether greedy answers go on where they are beyond the edit budget."""
        return self.greedy == "full" or "unlearning" in self.measures

    @property
    def edits(self) -> int:
        """ε: the edit budget, by default a tenth of the suffix: of its tokens, or with text of its characters."""
        return self.suffix_length // UNITS_PER_EDIT if self.edit_budget is None else self.edit_budget

    @property
    def sampled_answers(self) -> int:
        """Per window; a server is asked for none unless told to, and lists that are too short allow none."""
        if "near" not in self.measures:
            return 0
        return (0 if self.is_served or self.is_capped else 2) if self.answers is None else self.answers

    @property
    def limits(self) -> "Limits":
        from byrote.search.base import Limits

        return Limits(self.prefix_tokens, self.suffix_tokens)

    @property
    def needs_frontier(self) -> bool:
        return bool(self.estimate != "off" or self.refine or self.closure)

    @property
    def keeps_states(self) -> bool:
        """Whether so much is done after a search that it pays to keep what it computed."""
        return bool((self.residual and self.estimate != "off") or self.refine or self.closure)

    @property
    def keeps_all_found(self) -> bool:
        """Whether every accepted continuation is looked at again, however few of them are stored."""
        return bool(self.verify or self.posthoc)

    @property
    def kept_found(self) -> int:
        """Accepted continuations that later stages need, where they do not need all."""
        return max(self.keep, self.passage_roots) if self.passage else self.keep

    def search_options(self) -> "SearchOptions":
        from byrote.search.base import SearchOptions

        # The cap does not depend on what follows the search: a sampled option must not move certified bounds.
        children = None if self.policy.top_k is not None else self.max_children
        return SearchOptions(
            policy=self.policy,
            beam_width=self.beam_width,
            edit_budget=self.edits,
            distance=self.distance,
            viability=self.viability,
            pin_verbatim=self.pin,
            negligible=self.negligible,
            threshold=None if self.stop_rule == "off" else self.threshold,
            stop_rule="mass" if self.stop_rule == "off" else self.stop_rule,
            rank_by=self.rank,
            keep=None if self.keeps_all_found else self.kept_found,
            max_children=self.logprobs if self.is_capped else children,
            record_frontier=self.needs_frontier,
            keep_states=self.keeps_states,
            policies=self.bounded_policies,
            target_chars=LONGEST_FORM * self.suffix_chars if self.unit == "text" else None,
        )

    def identity(self) -> dict[str, Any]:
        """The options that decide the numbers; a run folder belongs to exactly one such set."""
        declared = options_of(type(self))
        return {name: value for name, value in self.as_dict().items() if declared[name].spec.in_identity}

    def as_dict(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def parse_policy(text: str, *, option: str = "sweep") -> "Policy":
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
                f"{option} has {text!r}; write policies as k=10, p=0.9, t=0.7, or joined by + as in t=0.7+k=40."
            ) from error
    top_k = known.get("k")
    return Policy(known.get("t", 1.0), None if top_k is None else int(top_k), known.get("p"))


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `index` of `count`, counted from 0. Which shard a window belongs to follows from its id alone, so every
    process finds its own windows, in any order."""

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


def shard_of_array(environment: Mapping[str, str]) -> Shard:
    """The shard of this task of a SLURM array, by its place among the array's tasks."""
    names = [f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "MIN", "MAX", "STEP", "COUNT")]
    try:
        own, first, last, step, count = (int(environment[name]) for name in names)
        index, rest = divmod(own - first, step)
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(
            f"shard is auto, but this is no task of a SLURM array ({names[0]} and its like are not set); give 0/3, say."
        ) from error
    if rest or not 0 <= index < count or first + (count - 1) * step != last:
        raise ConfigError(
            f"shard is auto, but the tasks of the array are not evenly spaced ({count} from {first} to {last} in steps "
            f"of {step}); submit it as --array=0-{max(count - 1, 0)}."
        )
    return Shard(index, count)


def runs_of(config: RunConfig) -> list[RunConfig]:
    """One configuration for every model that `--model` names and every prompt, each with a folder of its own in
    `--out`; a single model that is not a glob keeps `--out` itself, and so does a single prompt."""
    models = [config.model] if config.is_served else models_named(config.model)
    runs = [config]
    if models != [config.model]:
        runs = [
            dataclasses.replace(config, model=model, out=str(Path(config.out) / folder))
            for model, folder in zip(models, _folders(models), strict=True)
        ]
    if len(config.prompt) == 1:
        return runs
    names = [Path(prompt).stem for prompt in config.prompt]
    if len(set(names)) < len(names):
        raise ConfigError(f"the prompts {', '.join(config.prompt)} have the same names; rename one of the files.")
    return [
        dataclasses.replace(run, prompt=(prompt,), out=str(Path(run.out) / name))
        for run in runs
        for prompt, name in zip(config.prompt, names, strict=True)
    ]


def models_named(given: str) -> list[str]:
    """The models behind names with commas and globs, numbers in their order: step-2 comes before step-10."""
    if os.path.lexists(os.path.expanduser(given)):
        return [given]
    models: list[str] = []
    for name in filter(None, map(str.strip, given.split(","))):
        found = [name]
        if glob.has_magic(name):
            found = sorted(filter(os.path.isdir, glob.glob(os.path.expanduser(name))), key=_in_order)
        if not found:
            raise ConfigError(f"model {name!r} matches no folder; give model folders, or check the pattern.")
        models += found
    return list(dict.fromkeys(models))


def _in_order(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", path)]


def _folders(models: list[str]) -> list[str]:
    """Names of run folders: the shortest ends of the models' paths that differ."""
    parts = [[part for part in Path(model).parts if part not in ("/", ".", "..", "~")] for model in models]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["--".join(one[-count:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    raise ConfigError(f"the models {', '.join(models)} have the same names; rename one of them.")


@dataclass(frozen=True, slots=True, kw_only=True)
class McOptions(Settled):
    """Which windows are sampled, and how often."""

    run: Path = required("A scan: its windows, its model and its options.", group="text", positional=True)
    model: str = like(RunConfig, "model", help="Model folder or hub id, where it has moved since the run.")
    prompt: str | None = option(
        None, "What the model is given: plain, chat, ask or a file, as for a scan.", group="text",
        default_words="as in the run",
    )  # fmt: skip
    window: str | None = option(None, "Only the window with this id.", group="text")
    sample: int | None = like(RunConfig, "sample", default=5, default_words=None)
    samples: int = option(1000, "Continuations sampled per window (M).", group="estimates", at_least=1)
    replicates: int = option(1, "Independent groups of samples.", group="estimates", at_least=1)
    interval: IntervalName = option(
        "wilson", "Interval of the share of hits; exact is Clopper–Pearson.", group="estimates"
    )
    out: Path | None = option(None, "Also write a run folder, for show and report.", group="output")
    seed: int = like(RunConfig, "seed")
    slots: int | None = like(RunConfig, "slots")
    device: str = like(RunConfig, "device")
