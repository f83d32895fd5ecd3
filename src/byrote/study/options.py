"""What a study's file holds beside the options of a scan. A scan option with a list of values is an axis."""

from dataclasses import dataclass
from typing import Literal

from byrote.errors import ConfigError
from byrote.options import Settled, option, settle

PublishedMeasure = Literal[
    "greedy", "verbatim", "near", "search", "bleu", "possible", "near_count", "search_count", "bleu_count"
]
"""What papers print: rates, and counts of windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published(Settled):
    """A number that somebody published, and which cells of the grid measure it again."""

    measure: PublishedMeasure = option("near", "What was measured.", group="text")
    where: str = option("", "The cells it is about: axis=value, several joined by commas.", group="text")
    value: float = option(0.0, "The published number; rates as shares.", group="text", at_least=0)
    source: str = option("", "Paper, table and page.", group="text")
    split: Literal["target", "control"] = option("target", "Which side it is about.", group="text")
    edits: int | None = option(None, "ε of a near-verbatim number.", group="text", at_least=0)

    @property
    def settings(self) -> dict[str, str]:
        """axis → value."""
        pairs = [part.partition("=") for part in self.where.split(",") if part.strip()]
        return {name.strip().replace("-", "_"): value.strip() for name, _, value in pairs}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig:
    """Options that a study has and a scan has not."""

    about: str = option("", "What the study asks, in a sentence.", group="text")
    texts: tuple[str, ...] = option((), "Texts that each make cells of their own; --text measures several together.",
                                    group="text")  # fmt: skip
    policy: tuple[str, ...] = option(
        (), "Policies that each make cells of their own, as k=40 or t=0.7+k=40.", group="policy", commas=True
    )
    overlap: float = option(
        0.5, "Windows of two cells are a pair if their targets share this part of the characters of either.",
        group="text", above=0, at_most=1,
    )  # fmt: skip
    montecarlo_windows: int = option(
        0, "Extractable windows sampled in the first cell of every model, to see sampling converge.",
        group="estimates", at_least=0,
    )  # fmt: skip
    montecarlo_samples: int = option(1000, "Continuations sampled of each.", group="estimates", at_least=10)
    published: tuple[Published, ...] = ()
    """Numbers to stand beside one's own."""

    def __post_init__(self) -> None:
        settle(self)
        for one in self.published:
            if not one.source:
                raise ConfigError(
                    f"a published {one.measure} of {one.value:g} has no source; name paper, table and page."
                )
