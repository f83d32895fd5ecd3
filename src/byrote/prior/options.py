"""Options of `byrote prior` and their defaults. Flags, YAML keys and help derive from these fields."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from byrote.corpus.spans import SpanKind
from byrote.errors import ConfigError
from byrote.options import Common, like, option, required, settle
from byrote.types import BosRule, DtypeName

if TYPE_CHECKING:  # `byrote prior --help` reads the fields and does not wait for torch
    from byrote.policy import Policy

AUTO_SPANS = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorConfig:
    """What to score (exactly one of text, pairs, run), against which reference corpus, and with which thresholds."""

    model: str = required("Model folder or hub id.", group="text")
    prior_text: tuple[str, ...] = required(
        "Reference corpus the prefixes are drawn from: files, folders or globs.", group="text"
    )
    out: str = required(
        "Run folder to write; an unfinished one is resumed.", group="output", is_path=True, aliases=("--output-path",)
    )
    text: tuple[str, ...] = like(Common, "text", help="Texts whose windows or spans are scored, as for a scan.")
    control: tuple[str, ...] = like(
        Common, "control", help="Texts the model has not seen, scored and counted beside --text."
    )
    pairs: str | None = option(
        None,
        "A file of pairs of prefix and suffix instead of texts, as a scan reads them.",
        group="text",
        is_path=True,
        is_common=True,
    )
    run: str | None = option(
        None, "A finished scan whose extractable windows get a prior-aware verdict.", group="text", is_path=True,
        is_common=True,
    )  # fmt: skip
    pool: int | None = option(
        None,
        "With --run of a near-verbatim scan: continuations sampled after drawn prefixes, against which its "
        "near-verbatim masses are judged; 0 for none.",
        group="prior", at_least=0, default_words="as many as prefixes are drawn",
    )  # fmt: skip
    every_window: bool = option(False, "With --run: all of its windows, not only the extractable ones.", group="text")
    spans: str | None = option(
        None, "Score spans of the texts: auto for identifiers found by regular expressions, or a JSONL file.",
        group="text", is_path=True, is_common=True,
    )  # fmt: skip
    span_tokens: tuple[int, ...] = option(
        (), "Score only spans of these lengths in tokens, separated by commas (published: 4).", group="text",
        commas=True, at_least=1, default_words="any",
    )  # fmt: skip
    span_kinds: tuple[SpanKind, ...] = option(
        tuple(SpanKind), "Identifiers that auto looks for, separated by commas.", group="text", commas=True
    )
    revision: str | None = like(Common, "revision")
    prefix_tokens: int = like(Common, "prefix_tokens", help="Tokens of every prefix.")
    suffix_tokens: int = like(Common, "suffix_tokens", help="Tokens of a window's suffix.")
    prefix_lengths: tuple[int, ...] = option(
        (), "Further prefix lengths to sweep, each with its own prior and threshold.", group="prior",
        commas=True, at_least=1,
    )  # fmt: skip
    stride_chars: int = like(
        Common, "stride_chars", help="Windows and drawn prefixes start at multiples of this many characters."
    )
    whole_documents: bool = like(Common, "whole_documents")
    limit: int | None = like(Common, "limit", help="Score only the first N.")
    sample: int | None = like(Common, "sample", help="Score a seeded random sample of N.")
    prior_prefixes: int = option(
        1000, "Prefixes drawn per trial (c; published: 5000). A reference text that has no more in all is taken whole.",
        group="prior", at_least=1, is_common=True,
    )  # fmt: skip
    trials: int = option(5, "Independent trials.", group="prior", at_least=1)
    seed: int = like(Common, "seed")
    least_probability: float | None = option(
        None, "m: least P(s|p).", group="prior", at_least=0, below=1,
        default_words="by suffix length: 0.01 at 4, 0.0001 at 50 tokens",
    )  # fmt: skip
    least_ratio: float | None = option(
        None, "n: least ratio.", group="prior", at_least=0,
        default_words="the mean over generic texts, for this model",
    )  # fmt: skip
    generic: str | None = option(
        None,
        "Your own generic texts, one a line: short ones for short suffixes, long ones for others.",
        group="prior",
        default_words="byrote's own",
        is_path=True,
    )
    temperature: float = like(Common, "temperature")
    top_k: int | None = like(Common, "top_k", default=None, help="Keep the k most likely tokens.")
    top_p: float | None = like(Common, "top_p")
    bos: BosRule = like(Common, "bos")
    device: str = like(Common, "device")
    dtype: DtypeName = like(Common, "dtype")
    batch_windows: int = like(
        Common, "batch_windows", default=32, default_words=None, help="Windows per teacher-forced pass."
    )

    def __post_init__(self) -> None:
        settle(self)
        given = [name for name in ("text", "pairs", "run") if getattr(self, name)]
        if len(given) != 1:
            found = " and ".join(f"--{name}" for name in given) or "none of them"
            raise ConfigError(f"give exactly one of --text, --pairs and --run to say what is scored, not {found}.")
        if self.spans is not None and not self.text:
            raise ConfigError("--spans looks for spans inside texts; give the texts with --text.")
        if self.control and not self.text:
            raise ConfigError(
                "--control stands beside --text; in --pairs, give controls the split control or 0 copies."
            )
        if self.pool is not None and self.run is None:
            raise ConfigError("--pool is for near-verbatim masses, which a scan measures; name the scan with --run.")
        if self.prior_prefixes * self.trials < 2:
            raise ConfigError("one drawn prefix has no standard error; raise --prior-prefixes.")

    def identity(self) -> dict[str, Any]:
        """The options that decide numbers and are not already in the hashes of what is scored and drawn."""
        names = ("prefix_lengths", "prefix_tokens", "trials", "least_probability", "least_ratio", "pool")
        return {name: getattr(self, name) for name in (*names, "temperature", "top_k", "top_p")}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The model and the texts."""
        return (self.model, *self.text, *self.control, *self.prior_text)

    @property
    def loading(self) -> dict[str, Any]:
        """How the model is loaded."""
        return {"revision": self.revision, "dtype": self.dtype, "device": self.device}

    @property
    def policy(self) -> "Policy":
        from byrote.policy import Policy

        return Policy(self.temperature, self.top_k, self.top_p)

    @property
    def all_prefix_lengths(self) -> tuple[int, ...]:
        """The main length first, then those of the sweep, each once."""
        return tuple(dict.fromkeys((self.prefix_tokens, *self.prefix_lengths)))

    @property
    def pool_members(self) -> int:
        return self.prior_prefixes * self.trials if self.pool is None else self.pool

    @property
    def longest_prefix(self) -> int:
        return max(self.all_prefix_lengths)
