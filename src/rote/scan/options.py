"""The only home of options and their defaults. CLI flags, YAML keys and docs derive from these fields."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from rote.distance import DistanceName, ViabilityName
from rote.errors import ConfigError
from rote.policy import Policy
from rote.scan.near import Screen
from rote.search.base import Limits, RankName, SearchOptions, StopRuleName

MEASURES = ("greedy", "verbatim", "near")
BosName = Literal["auto", "always", "never"]
ScreenName = Literal["auto", "off"]


def option(default: Any, help_text: str) -> Any:
    """A field that says in one place what it is, what it defaults to, and how to explain it."""
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Options of `rote scan`. Every field is a flag (`--top-k`) and a YAML key (`top_k`) of the same name."""

    model: str = option("", "Model folder or hub id.")
    text: tuple[str, ...] = option((), "Target texts: files, folders or globs (.txt .md .jsonl .parquet).")
    control: tuple[str, ...] = option((), "Control texts the model cannot have seen: files, folders or globs.")
    out: str = option("", "Run folder to write; an unfinished one is resumed.")
    revision: str | None = option(None, "Revision of a hub model.")
    prefix_tokens: int = option(50, "Tokens given to the model before each suffix.")
    suffix_tokens: int = option(50, "Tokens the model would have to reproduce.")
    stride_chars: int = option(20, "Start a window every this many characters.")
    whole_documents: bool = option(False, "One window per document: its first tokens. Replaces --stride-chars.")
    limit: int | None = option(None, "Measure only the first N windows.")
    sample: int | None = option(None, "Measure a seeded random sample of N windows.")
    seed: int = option(0, "Seed of everything that is drawn.")
    bos: BosName = option("auto", "Beginning-of-text token, counted inside the prefix: auto does as the tokenizer.")
    measures: tuple[str, ...] = option(MEASURES, "What to measure, separated by commas: greedy, verbatim, near.")
    temperature: float = option(1.0, "Temperature of the decoding policy.")
    top_k: int | None = option(40, "Keep the k most likely tokens; 'none' for no top-k.")
    top_p: float | None = option(None, "Keep the smallest set of tokens whose mass reaches this (nucleus).")
    sweep: tuple[str, ...] = option(
        (),
        "Further policies scored in the same pass, by commas: k=10, p=0.9, t=0.7, or joined as t=0.7+k=40.",
    )
    beam_width: int = option(20, "Beams kept per step.")
    edit_budget: int = option(5, "Edits within which a continuation counts as near-verbatim (ε).")
    distance: DistanceName = option("levenshtein", "Token distance: levenshtein, hamming, or none (baseline search).")
    viability: ViabilityName = option("exact", "Pruning rule: exact, or the published weaker one.")
    pin: bool = option(True, "Keep the verbatim path as an extra beam, so that the lower bound includes it.")
    negligible: float = option(1e-10, "Bank beams lighter than this instead of searching them; 0 searches all.")
    threshold: float = option(0.001, "Probability from which a window counts as extractable (τ).")
    stop_rule: StopRuleName | Literal["off"] = option(
        "mass", "When to stop a search early: mass (verdict decided), published (best beam below τ/Bk), off."
    )
    rank: RankName = option("mass", "What ranks beams: mass, or promise (mass × chance to finish in budget).")
    max_children: int | None = option(1024, "List at most this many children per beam; the rest is banked as mass.")
    screen: ScreenName = option("auto", "Search only windows whose teacher-forced rating reaches the floor, or all.")
    screen_floor: float = option(1e-6, "Rating from which a window is searched.")
    screen_share: float = option(0.01, "Share of screened windows searched all the same, to audit the screen.")
    screen_least: int = option(100, "At least this many screened windows are searched, if there are as many.")
    keep: int = option(3, "Accepted continuations stored per window, heaviest first.")
    closure: int = option(0, "Close up to this many pruned nodes per window that have one viable completion left.")
    verify: bool = option(False, "Re-score accepted continuations by teacher forcing in float32 and report the shift.")
    self_check: int = option(0, "Search N windows alone and in company, and report how far numbers move.")
    residual: int = option(0, "Token evaluations per window spent on estimating the mass the search left open.")
    residual_error: float | None = option(None, "Stop the residual estimate at this relative standard error.")
    refine: int = option(0, "Token evaluations per window spent on refining undecided windows.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N, or map to spread a model over devices.")
    dtype: str = option("auto", "auto, float32, bfloat16, float16.")
    slots: int | None = option(None, "Windows searched at once; by default chosen from the free memory.")
    batch_windows: int = option(32, "Windows per teacher-forced pass.")
    part_windows: int = option(256, "Windows per part written; at most one part is measured again after a kill.")
    compile: bool = option(False, "Compile the model's layers (pays on a GPU with many windows).")

    def __post_init__(self) -> None:
        self._check_sizes()
        unknown = sorted(set(self.measures) - set(MEASURES))
        if unknown or not self.measures:
            raise ConfigError(
                f"measures is {','.join(self.measures) or 'empty'}; choose among {', '.join(MEASURES)}, "
                "separated by commas."
            )
        assert self.policies, "a policy that cannot work is refused here, not in the middle of a run"
        self._check_shares()
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{_flag(name)} is {getattr(self, name)!r}; choose {', '.join(allowed)}.")
        if "near" in self.measures:
            self._check_budget()
            self.search_options()

    def _check_sizes(self) -> None:
        for name in ("prefix_tokens", "suffix_tokens", "stride_chars", "batch_windows", "part_windows"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{_flag(name)} is {getattr(self, name)}; it must be at least 1.")
        for name in ("keep", "closure", "self_check", "residual", "refine", "screen_least", "edit_budget"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{_flag(name)} is {getattr(self, name)}; it must be 0 or more.")
        for name in ("limit", "sample", "slots", "max_children"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{_flag(name)} is {value}; it must be at least 1.")

    def _check_budget(self) -> None:
        if self.edit_budget > self.suffix_tokens:
            raise ConfigError(
                f"edit-budget is {self.edit_budget}, but nothing is more than {self.suffix_tokens} edits away from a "
                f"suffix of {self.suffix_tokens} tokens; lower it."
            )

    def _check_shares(self) -> None:
        for name in ("screen_share", "screen_floor"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{_flag(name)} is {getattr(self, name)}; it must be between 0 and 1.")
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"threshold is {self.threshold}; it must be above 0 and at most 1.")
        if self.residual_error is not None and not 0 < self.residual_error < math.inf:
            raise ConfigError(f"residual-error is {self.residual_error}; it must be above 0.")

    @property
    def policy(self) -> Policy:
        return Policy(self.temperature, self.top_k, self.top_p)

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The run's policy, then those of the sweep: all scored in one teacher-forced pass."""
        return (self.policy, *(parse_policy(text) for text in self.sweep))

    @property
    def limits(self) -> Limits:
        return Limits(self.prefix_tokens, self.suffix_tokens)

    @property
    def needs_frontier(self) -> bool:
        return bool(self.residual or self.refine or self.closure)

    def search_options(self) -> SearchOptions:
        truncates = self.policy.top_k is not None
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
            keep=None if self.verify else self.keep,
            max_children=None if truncates or self.needs_frontier else self.max_children,
            record_frontier=self.needs_frontier,
            keep_states=self.needs_frontier,
            suppress_eos=False,
        )

    def screen_options(self) -> Screen | None:
        if self.screen == "off":
            return None
        return Screen(
            floor=self.screen_floor, sample_share=self.screen_share, sample_least=self.screen_least, seed=self.seed
        )

    def identity(self) -> dict[str, Any]:
        """The options that decide the numbers; a run folder belongs to exactly one such set."""
        left_out = {"out", "text", "control", "model", "device", "slots", "batch_windows", "part_windows", "self_check"}
        return {name: value for name, value in self.as_dict().items() if name not in left_out}

    def as_dict(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


_CHOICES: dict[str, tuple[str, ...]] = {
    "bos": ("auto", "always", "never"),
    "screen": ("auto", "off"),
    "distance": ("levenshtein", "hamming", "none"),
    "viability": ("exact", "published"),
    "rank": ("mass", "promise"),
    "stop_rule": ("mass", "published", "off"),
}


def parse_policy(text: str) -> Policy:
    """A policy written as `k=40`, `p=0.9`, `t=0.7`, or several joined by `+`."""
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


def _flag(name: str) -> str:
    return name.replace("_", "-")


def read_config_file(path: Path) -> dict[str, Any]:
    """Options from a YAML file, names as in RunConfig; unknown names and wrong types are errors."""
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        first_line = str(error).splitlines()[0]
        raise ConfigError(f"the configuration {path} is not valid YAML: {first_line}.") from error
    if not isinstance(loaded, Mapping):
        raise ConfigError(f"the configuration {path} must be a mapping of option names to values.")
    return {name: parse_value(name, value) for name, value in _known(loaded, path).items()}


def _known(loaded: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    names = {item.name for item in fields(RunConfig)}
    options = {str(name).replace("-", "_"): value for name, value in loaded.items()}
    unknown = sorted(set(options) - names)
    if unknown:
        import difflib

        close = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f" Did you mean {close[0]}?" if close else " See rote scan --help for the names."
        raise ConfigError(f"{path} has the unknown option {unknown[0]}.{hint}")
    return options


def parse_value(name: str, value: Any) -> Any:
    """A value from YAML or the command line as the field's type; a ConfigError names what does not fit."""
    kind = str({item.name: item for item in fields(RunConfig)}[name].type)
    is_optional = "None" in kind
    if is_optional and (value is None or str(value).lower() in ("none", "auto")):
        return None
    try:
        if "tuple" in kind:
            return _parse_list(name, value)
        if "bool" in kind:
            if not isinstance(value, bool):
                raise ValueError(value)
            return value
        if "int" in kind:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError(value)
            return int(value)
        if "float" in kind:
            if isinstance(value, bool):
                raise ValueError(value)
            return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{_flag(name)} is {value!r}; it must be {_describe(kind)}.") from error
    # YAML reads a bare `off` as false; for an option that knows the word, the word was meant.
    return "off" if value is False and "off" in _CHOICES.get(name, ()) else str(value)


def _parse_list(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        # A path may hold commas; measures and policies are words.
        parts = value.split(",") if name in ("measures", "sweep") else [value]
        return tuple(part.strip() for part in parts if part.strip())
    return tuple(str(part) for part in value)


def _describe(kind: str) -> str:
    for name, words in (
        ("tuple", "a list"),
        ("bool", "true or false"),
        ("int", "a whole number"),
        ("float", "a number"),
    ):
        if name in kind:
            return words
    return "a word"
