"""Every option of a scan with its default. Flags, YAML keys, help and docs derive from these fields."""

from dataclasses import dataclass
from typing import Literal

from rote.options import like, option
from rote.options.common import Common
from rote.scan.membership import MembershipOptions
from rote.types import BosRule, DistanceName, DtypeName, RankName, StopRuleName, ViabilityName

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
    """Every field is a flag of `rote scan` (`--top-k`) and a YAML key (`top_k`) of the same name."""

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
        "mass", "What ranks beams: mass, or rating (mass × rating of what is left).", group="search"
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
        None, "Measure one share of the windows, 0/3 … 2/3 for three; `rote merge` makes a run of all shares.",
        group="machine", default_words="all windows",
    )  # fmt: skip
