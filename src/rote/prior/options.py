"""Options of `rote prior`: the only home of their defaults. Flags carry the same names."""

from dataclasses import asdict, dataclass
from typing import Any

from rote.corpus.spans import SpanKind
from rote.errors import ConfigError
from rote.models.hf import BosRule
from rote.policy import Policy
from rote.stats.prior_mean import check_thresholds

AUTO_SPANS = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorConfig:
    """What to score (exactly one of text, pairs, run), against which reference corpus, and with which thresholds."""

    model: str
    prior_text: tuple[str, ...]
    out: str
    text: tuple[str, ...] = ()
    pairs: str | None = None
    """JSONL with `prefix` and `suffix`, optionally `id` and `kind`."""
    run: str | None = None
    """A finished scan whose windows get a prior-aware verdict."""
    every_window: bool = False
    """With `run`: all of its windows, not only the extractable ones."""
    spans: str | None = None
    """`auto` for identifiers by regular expressions, else a JSONL file; suffixes are then these spans of the texts."""
    span_kinds: tuple[str, ...] = tuple(map(str, SpanKind))
    revision: str | None = None
    prefix_tokens: int = 50
    suffix_tokens: int = 50
    prefix_lengths: tuple[int, ...] = ()
    """Further prefix lengths to sweep, each with its own prior and threshold."""
    stride_chars: int = 20
    whole_documents: bool = False
    limit: int | None = None
    sample: int | None = None
    prior_prefixes: int = 5000
    trials: int = 5
    seed: int = 0
    least_probability: float | None = None
    """m; None: by suffix length."""
    least_ratio: float | None = None
    """n; None: calibrated on generic texts."""
    generic: str | None = None
    """A file with one generic text a line; None: rote's own."""
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    bos: BosRule = "auto"
    device: str = "auto"
    dtype: str = "auto"
    batch_windows: int = 32

    def __post_init__(self) -> None:
        given = [name for name in ("text", "pairs", "run") if getattr(self, name)]
        if len(given) != 1:
            found = " and ".join(f"--{name}" for name in given) or "none of them"
            raise ConfigError(f"give exactly one of --text, --pairs and --run to say what is scored, not {found}.")
        for name in ("model", "prior_text", "out"):
            if not getattr(self, name):
                raise ConfigError(f"{_flag(name)} is missing; give --{_flag(name)}.")
        if self.spans is not None and not self.text:
            raise ConfigError("--spans looks for spans inside texts; give the texts with --text.")
        self._check_numbers()
        check_thresholds(self.least_probability, self.least_ratio)
        unknown = sorted(set(self.span_kinds) - set(map(str, SpanKind)))
        if unknown:
            raise ConfigError(f"span kind {unknown[0]!r} is not known; choose among {', '.join(SpanKind)}.")
        self.policy.describe()

    def _check_numbers(self) -> None:
        whole = ("prefix_tokens", "suffix_tokens", "stride_chars", "prior_prefixes", "trials", "batch_windows")
        for name in (*whole, "limit", "sample"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{_flag(name)} is {value}; it must be at least 1.")
        if self.prior_prefixes * self.trials < 2:
            raise ConfigError("one drawn prefix has no standard error; raise --prior-prefixes.")
        if any(length < 1 for length in self.prefix_lengths):
            raise ConfigError(f"prefix-lengths holds {min(self.prefix_lengths)}; every length must be at least 1.")

    @property
    def policy(self) -> Policy:
        return Policy(self.temperature, self.top_k, self.top_p)

    @property
    def all_prefix_lengths(self) -> tuple[int, ...]:
        """The main length first, then those of the sweep, each once."""
        return tuple(dict.fromkeys((self.prefix_tokens, *self.prefix_lengths)))

    @property
    def longest_prefix(self) -> int:
        return max(self.all_prefix_lengths)

    def as_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def identity(self) -> dict[str, Any]:
        """The options that decide numbers and are not already in the hashes of what is scored and drawn."""
        names = (
            "prefix_lengths",
            "prefix_tokens",
            "trials",
            "least_probability",
            "least_ratio",
            "temperature",
            "top_k",
        )
        return {name: value for name, value in self.as_dict().items() if name in (*names, "top_p")}


def _flag(name: str) -> str:
    return name.replace("_", "-")
