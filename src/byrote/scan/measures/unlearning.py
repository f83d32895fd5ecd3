"""What papers on unlearning print of a model, from the pass that is made anyway and the whole greedy answer.

T is the number of target tokens; a place is hit where the model's most likely next token, given the target up to
there, is the target's:

- exact_match: hits / T;
- extraction_strength: (T − k) / T, k the first place from which on every place is hit; 0 where the last one is not.
  Greedy decoding then goes on from the prefix and k target tokens to exactly the rest of the target;
- rouge_l: F1 of the longest common subsequence of words in the greedy answer and the target (ROUGE-L). Words are runs
  of letters and digits in lower case, not stemmed. Undefined (null) where the target has no word;
- longest_common_run: most tokens in a row that the greedy answer and the target share.
"""

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from byrote.scan.measures.base import Decode, Measure, Measured
from byrote.store.columns import Column

if TYPE_CHECKING:  # options and columns are read without waiting for torch
    from byrote.models.base import TreeModel
    from byrote.scan.options import RunConfig

_WORD = re.compile(r"[^\W_]+")


def exact_match(hits: Sequence[bool]) -> float:
    """The share of places that are hit."""
    return sum(hits) / len(hits)


def extraction_strength(hits: Sequence[bool]) -> float:
    """The share of places in the run of hits that ends with the last place."""
    misses = [place for place, is_hit in enumerate(hits) if not is_hit]
    return (len(hits) - 1 - misses[-1]) / len(hits) if misses else 1.0


def rouge_l(answer: str, target: str) -> float | None:
    """F1 of the longest common subsequence of words; None where `target` has none."""
    from rapidfuzz.distance import LCSseq

    given, wanted = (_WORD.findall(text.lower()) for text in (answer, target))
    return 2 * LCSseq.similarity(given, wanted) / (len(given) + len(wanted)) if wanted else None


def longest_common_run(answer: Sequence[int], target: Sequence[int]) -> int:
    """Most tokens in a row that both have."""
    return SequenceMatcher(None, answer, target, autojunk=False).find_longest_match().size


def begin(config: "RunConfig", model: "TreeModel", decode: Decode) -> Callable[[Sequence[Measured]], None]:
    """The four numbers of every window, once it has its greedy answer."""

    def compare(answered: Sequence[Measured]) -> None:
        for item in answered:
            assert item.greedy is not None, "greedy answers are decoded in full for this measure"
            target = item.window.suffix_ids
            hits = [choice == token for choice, token in zip(item.score.first_choices, target, strict=True)]
            # Decoding stops at an end-of-text token: what follows one is never reached from before it.
            reached = [
                is_hit and (token not in model.eos_ids or place == len(target) - 1)
                for place, (is_hit, token) in enumerate(zip(hits, target, strict=True))
            ]
            texts = [
                decode(tuple(token for token in ids if token not in model.eos_ids))
                for ids in (item.greedy.token_ids, target)
            ]
            item.further["unlearning"] = {
                "exact_match": exact_match(hits),
                "extraction_strength": extraction_strength(reached),
                "rouge_l": rouge_l(*texts),
                "longest_common_run": longest_common_run(item.greedy.token_ids, target),
            }

    return compare


UNLEARNING = Measure(
    "unlearning",
    (
        Column("exact_match", "float64"),
        Column("extraction_strength", "float64"),
        Column("rouge_l", "float64"),
        Column("longest_common_run", "int32"),
    ),
    lambda item: item.further["unlearning"],
    lambda config: "unlearning" in config.measures,
    begin,
)
