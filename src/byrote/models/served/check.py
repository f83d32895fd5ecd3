"""What is found out about a server before anything is measured: how many tokens it lists, how it tells about places
inside a prompt, what its values mean, and whether it has the tokenizer that was given.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from byrote.errors import ConfigError, EndpointError
from byrote.models.responder import AnswerUnreadable, NothingThere, RequestRejected
from byrote.models.served.client import Server
from byrote.models.served.dialects import (
    Card,
    Dialect,
    LlamaCpp,
    Prompt,
    Said,
    Sglang,
    Vllm,
    card_of,
    field,
    items,
    token_id,
)
from byrote.models.served.rows import Asker, Book, Row, row_of, unpacked
from byrote.models.tokenizer import Tokenizing

DIALECTS: dict[str, type[Vllm] | type[Sglang] | type[LlamaCpp]] = {
    "vllm": Vllm,
    "sglang": Sglang,
    "llamacpp": LlamaCpp,
}
TRIED_TEMPERATURE = 0.5
TOLD_APART = 0.02
"""Difference of two log-probabilities from which temperatures can be told apart, in nat."""
LIKELY = math.log(0.02)
LEAST_LEFT = 1e-6
SHOWN_CHARACTERS = 80
"""Of a name that a server gives, in messages."""
MOVED = 0.5
"""Change of a likely token's log-probability, in nat, that no batch, cache or kernel explains."""
ROUND_TRIP_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    " It was — they said — the 3rd of “May”;\n\nnaïve façade, 12,345.67 €\tend",
)


class Probe(NamedTuple):
    """A prompt by which a server is known again, and what it said."""

    prompt: Prompt
    row: Row


class Tried(NamedTuple):
    """What a server was found to do."""

    dialect: Dialect
    listed: int
    values: str
    """Whether its values come before or after the temperature. They are asked for at temperature 1, where both are the
    model's own."""
    probe: Probe


def find_card(server: Server, served_model: str | None) -> Card:
    """The model that is meant, of those that the server says it has."""
    cards = server.get(
        "/v1/models", lambda answer: [card_of(entry) for entry in items(field(answer, "data"), "models")]
    )
    chosen = [card for card in cards if served_model in (None, card.name)]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(card.name[:SHOWN_CHARACTERS] for card in cards[:10]) or "none"
    wanted = "several models" if served_model is None and cards else f"no model {served_model or ''}".rstrip()
    raise ConfigError(f"{server.root} serves {wanted} ({names}); choose one of them with --served-model.")


def find_dialect(asked_for: str, card: Card, root: str) -> Dialect:
    """The dialect that was asked for, or the one that the server's own words give away."""
    name = card.owner if asked_for == "auto" else asked_for
    if name not in DIALECTS:
        raise ConfigError(
            f"{root} says that its model is owned by {card.owner[:SHOWN_CHARACTERS]!r}, which tells nothing about how "
            f"to ask it; give --set dialect=NAME, one of {', '.join(DIALECTS)}."
        )
    return DIALECTS[name]()


def try_server(asker: Asker, probe: Sequence[int]) -> Tried:
    """Ask a few small things; `asker` has the dialect and wants as many tokens listed as the policy keeps."""
    prompt = Prompt(tuple(probe), len(probe) - 1)
    asker.listed = find_listed(asker, prompt)
    if asker.dialect.scores is not None:
        asker.dialect = find_scores(asker, Prompt(prompt.token_ids, 0))
    ((plain,),) = asker.rows([prompt])
    return Tried(asker.dialect, asker.listed, find_values(asker, prompt, plain), Probe(prompt, plain))


def find_listed(asker: Asker, prompt: Prompt) -> int:
    """How many tokens the server lists: what is wanted, or the most it says or shows that it gives."""
    wanted = min(asker.listed, asker.vocab_size)
    while wanted >= 1:
        try:
            (places,) = asker.said([prompt], listed=wanted)
        except RequestRejected as refusal:
            numbers = [int(number) for number in re.findall(r"\d+", str(refusal).partition("answered")[2])]
            wanted = max((number for number in numbers if 0 < number < wanted), default=0)
            if not wanted:
                raise
            continue
        count = len(places[0])
        if count >= wanted:
            return wanted
        # The token that was sampled may stand beside the list.
        wanted = count - 1
    raise EndpointError(f"{asker.server.root} lists no tokens with their probabilities; use another server.")


def find_scores(asker: Asker, chain: Prompt) -> Dialect:
    """The dialect in the way that works for places inside a prompt; one prompt a place if none does. A way works if it
    tells what prompts of their own tell: an answer that is off by one place has the right shape too."""
    dialect = asker.dialect
    apart = asker.rows(chain.single())
    for way in (dialect, Vllm("echo")) if isinstance(dialect, Vllm) else (dialect,):
        try:
            asker.dialect = way
            (places,) = asker.said([chain])
        except (AnswerUnreadable, RequestRejected):
            continue
        if _tell_the_same(asker, [row for (row,) in apart], places):
            return way
    asker.dialect, dialect.scores = dialect, None
    return dialect


def _tell_the_same(asker: Asker, apart: Sequence[Row], places: Sequence[Said]) -> bool:
    try:
        rows = [row_of(place, listed=asker.listed, vocab_size=asker.vocab_size) for place in places]
    except EndpointError:  # no probabilities, or too few
        return False
    return all(largest_change(one, row) <= MOVED for one, row in zip(apart, rows, strict=True))


def largest_change(one: Row, other: Row) -> float:
    """Of a likely token's log-probability, in nat. A token that a list leaves out has at most the least value in it,
    and no more than all listed ones leave."""
    return max(_largest_fall(one, other), _largest_fall(other, one))


def _largest_fall(one: Row, other: Row) -> float:
    told = other.by_token
    left = math.log(max(LEAST_LEFT, 1.0 - math.fsum(map(math.exp, told.values()))))
    unlisted = min(left, *told.values())
    likely = [(token, value) for token, value in one.by_token.items() if value >= LIKELY]
    return max((value - told.get(token, unlisted) for token, value in likely), default=0.0)


def require_same_model(before: Row, now: Row, root: str) -> None:
    """Refuse to go on with a server that serves another model than the one that answered first."""
    change = largest_change(before, now)
    if change > MOVED:
        raise EndpointError(
            f"{root} does not answer as it did when this run was begun: after the same text a likely token's "
            f"log-probability is {change:.2f} nat away. Serve the first model again, or choose another --out."
        )


def find_values(asker: Asker, prompt: Prompt, plain: Row) -> str:
    """Whether values change with the temperature that is asked for; `plain` are those at 1."""
    ((cold,),) = asker.rows([prompt], temperature=TRIED_TEMPERATURE)
    pairs = _common_gaps(plain, cold)
    if not pairs:
        return "not told apart"
    gap, cold_gap = max(pairs)
    for words, expected in (("before temperature", gap), ("after temperature", gap / TRIED_TEMPERATURE)):
        if abs(cold_gap - expected) <= 0.25 * gap:
            return words
    raise EndpointError(
        f"{asker.server.root} gives values that neither stay as they are with the temperature nor follow it "
        f"({gap:.3f} nat at 1, {cold_gap:.3f} at {TRIED_TEMPERATURE:g}); something changes them on the way."
    )


def _common_gaps(plain: Row, cold: Row) -> list[tuple[float, float]]:
    """How far listed tokens are below the first one, both ways, for tokens in both lists."""
    first, second = plain.by_token, cold.by_token
    top = int(plain.token_ids[0])
    if top not in second:
        return []
    common = [token for token in first if token in second and first[token] > -100 and second[token] > -100]
    gaps = [(first[top] - first[token], second[top] - second[token]) for token in common]
    return [pair for pair in gaps if pair[0] >= TOLD_APART]


def round_trip(server: Server, dialect: Dialect, tokenizing: Tokenizing, *, model: str, texts: Sequence[str]) -> str:
    """Refuse a tokenizer that is not the server's. Says how it was seen."""
    for text in (*ROUND_TRIP_TEXTS, *texts):
        try:
            theirs = server.post("/tokenize", dialect.tokenize_body(text, model=model), _token_ids)
        except NothingThere:
            return "not checked: the server has no /tokenize"
        (ours,) = tokenizing.encode_batch([text])
        if list(ours.ids) != theirs:
            raise ConfigError(
                f"the tokenizer given is not the one that {server.root} uses: {text[:40]!r} is {list(ours.ids)[:8]} "
                f"here and {theirs[:8]} there; give the --tokenizer of the model that is served."
            )
    return f"{len(ROUND_TRIP_TEXTS) + len(texts)} texts gave the same tokens"


def _token_ids(answer: Any) -> list[int]:
    return [token_id(token) for token in items(field(answer, "tokens"), "tokens")]


class SecondAsking:
    """A book that finds nothing, so that everything is asked again, and compares what comes with what came first."""

    def __init__(self, first: Book) -> None:
        self._first = first
        self.prompts_compared = 0
        self.largest_shift = math.nan
        """Largest change of a log-probability; NaN while nothing was compared. Of a token that is listed only once, the
        least that it must have changed: an unlisted token has no more than the least that is listed."""
        self.lists_changed = 0
        """Places at which another token came into the list."""

    def find(self, key: str) -> bytes | None:
        return None

    def keep(self, answers: Mapping[str, bytes]) -> None:
        for key, now in answers.items():
            before = self._first.find(key)
            if before is not None:
                self.prompts_compared += 1
                for first, second in zip(unpacked(before), unpacked(now), strict=True):
                    self._compare(first, second)

    def _compare(self, first: Row, second: Row) -> None:
        before, now = first.by_token, second.by_token
        common = before.keys() & now.keys()
        self.lists_changed += len(common) < len(before)
        pairs = [(before[token], now[token]) for token in common]
        pairs += [(value, min(value, min(now.values()))) for token, value in before.items() if token not in common]
        pairs += [(value, min(value, min(before.values()))) for token, value in now.items() if token not in common]
        # A probability that a server rounded to 0 once, and not the other time, has no change in nat.
        shifts = [abs(one - other) for one, other in pairs if min(one, other) > -math.inf]
        self.largest_shift = max(0.0 if math.isnan(self.largest_shift) else self.largest_shift, *shifts, 0.0)
