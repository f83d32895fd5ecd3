"""A planned training set: which passage is in the stream how many times, exactly, nearly, or in another edition.

The plan is the ground truth of every lab experiment. Copies are whole documents, near-duplicates share a stated
fraction of token positions with the passage, controls are nowhere. The same plan gives the same stream.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from byrote.errors import ConfigError
from byrote.lab.train import encode_all

NEAR_DUPLICATE_SHARE = 0.2

SPELLINGS = (
    ("harbour", "harbor"), ("parlour", "parlor"), ("neighbour", "neighbor"), ("honour", "honor"),
    ("colour", "color"), ("grey", "gray"), ("theatre", "theater"), ("plough", "plow"), ("woollen", "woolen"),
    ("travell", "travel"), ("quarrell", "quarrel"), ("learnt", "learned"), ("towards", "toward"),
    ("Whilst", "While"),
)  # fmt: skip
PUNCTUATION = ((", ", "; "), (", ", " "), ("; ", ", "), (". ", "; "), (",\u0022", ".\u0022"))
_EDITABLE = re.compile("|".join(re.escape(old) for old in dict([*SPELLINGS, *PUNCTUATION])))


class PassageKind(StrEnum):
    """What a passage is, and in which wording the model saw it."""

    PROSE = "prose"
    PERSON = "person"
    EDITION = "edition"
    """Prose of which the stream holds another edition: the scanned wording itself was never trained on."""


@dataclass(frozen=True, slots=True)
class PlannedPassage:
    """One passage to scan, and what the training stream holds of it. A control has 0 copies and 0 near-duplicates."""

    name: str
    kind: PassageKind
    text: str
    """What is scanned."""
    copies: int = 0
    trained_text: str | None = None
    """What the stream holds `copies` times; None: the scanned text itself."""
    near_duplicates: int = 0
    near_duplicate_share: float = NEAR_DUPLICATE_SHARE

    @property
    def text_in_stream(self) -> str:
        return self.text if self.trained_text is None else self.trained_text


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Everything a training stream is made of. `seed` decides the near-duplicates and the order."""

    targets: tuple[PlannedPassage, ...]
    controls: tuple[PlannedPassage, ...]
    background: tuple[str, ...]
    seed: int

    def __post_init__(self) -> None:
        for control in self.controls:
            if control.copies or control.near_duplicates:
                raise ConfigError(
                    f"control {control.name} is planned with {control.copies} copies and {control.near_duplicates} "
                    "near-duplicates; make it a target or set both to 0."
                )
        names = [passage.name for passage in (*self.targets, *self.controls)]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ConfigError(f"passage names {', '.join(twice)} are used twice; rename one of each.")

    def texts(self) -> list[str]:
        """Every different text in the stream, once: what a tokenizer may be trained on."""
        return [*self.background, *(target.text_in_stream for target in self.targets if target.copies)]


def training_documents(plan: CopyPlan, tokenizer: PreTrainedTokenizerFast) -> list[list[int]]:
    """The whole stream as token ids, one list a document, in the seeded order.

    A passage's near-duplicates do not depend on its copies, so a counterfactual baseline (the same plan with fewer
    copies) keeps exactly the same ones.
    """
    background = encode_all(tokenizer, plan.background)
    documents = list(background)
    originals = encode_all(tokenizer, [target.text_in_stream for target in plan.targets])
    donor = [token for document in background for token in document]
    for target, original in zip(plan.targets, originals, strict=True):
        documents += [original] * target.copies
        generator = random.Random(f"lab near-duplicates {plan.seed} {target.name}")
        documents += [
            near_duplicate(original, donor, share=target.near_duplicate_share, generator=generator)
            for _ in range(target.near_duplicates)
        ]
    random.Random(f"lab stream {plan.seed}").shuffle(documents)
    return documents


def near_duplicate(
    original: Sequence[int], donor: Sequence[int], *, share: float, generator: random.Random
) -> list[int]:
    """`original` with exactly `round(share · length)` positions kept and every other position different.

    The other tokens are a run of `donor` from a random place, so that they read like ordinary text; where the run
    happens to agree with the original it moves on to the next token.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"near-duplicate share {share} is not a fraction; give a number from 0 to 1.")
    kept = set(generator.sample(range(len(original)), round(share * len(original))))
    if len(kept) == len(original):
        return list(original)
    if len(set(donor)) < 2:
        raise ConfigError(
            f"near-duplicates need a background with at least 2 different tokens to borrow from; this one has "
            f"{len(set(donor))}. Add background text."
        )
    place = generator.randrange(len(donor))
    duplicate: list[int] = []
    for position, token in enumerate(original):
        if position in kept:
            duplicate.append(token)
            continue
        while donor[place % len(donor)] == token:
            place += 1
        duplicate.append(donor[place % len(donor)])
        place += 1
    return duplicate


def other_edition(text: str, generator: random.Random, *, changes: int) -> str:
    """`text` with `changes` small changes of spelling and punctuation, spread over it: one in each equal share.

    Where the text has fewer places to change, all of them are changed.
    """
    places = list(_EDITABLE.finditer(text))
    chosen = [
        generator.choice(group)
        for group in (
            places[number * len(places) // changes : (number + 1) * len(places) // changes] for number in range(changes)
        )
        if group
    ]
    for match in reversed(chosen):
        replacements = [new for old, new in (*SPELLINGS, *PUNCTUATION) if old == match.group()]
        text = text[: match.start()] + generator.choice(replacements) + text[match.end() :]
    return text
