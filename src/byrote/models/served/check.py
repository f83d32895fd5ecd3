"""What is checked before anything is measured: how many tokens a server lists, whether it lists them at places inside
a prompt, and whether its tokenizer is the one given. `RepeatCheck` compares answers afterwards.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from byrote.errors import ConfigError, EndpointError
from byrote.models.listed import Prompt, Row
from byrote.models.responder import AnswerUnreadable, NothingThere, RequestRejected
from byrote.models.served import dialects
from byrote.models.served.client import Server
from byrote.models.served.logprobs import RowCache, RowClient, unpacked
from byrote.models.tokenizer import Tokenizing

DIALECTS: dict[str, Callable[[], dialects.Dialect]] = {
    "vllm": dialects.Vllm,
    "sglang": dialects.Sglang,
    "llamacpp": dialects.LlamaCpp,
}
LIKELY = math.log(0.02)
MIN_REST = 1e-6
SHOWN_CHARACTERS = 80
"""Of a name that a server gives, in messages."""
SAME_MODEL_TOLERANCE = 0.5
"""Change of a likely token's log-probability, in nat, that no batch, cache or kernel explains."""
ROUND_TRIP_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    " It was — they said — the 3rd of “May”;\n\nnaïve façade, 12,345.67 €\tend",
)


class Fingerprint(NamedTuple):
    """A prompt and its answer, by which a served model is recognised later."""

    prompt: Prompt
    row: Row


def find_card(server: Server, served_model: str | None) -> dialects.ModelCard:
    """The model named, or the only one that the server lists."""
    cards = server.request(
        "/v1/models",
        None,
        lambda answer: [dialects.card_of(entry) for entry in dialects.items(dialects.field(answer, "data"), "models")],
    )
    chosen = [card for card in cards if served_model in (None, card.name)]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(card.name[:SHOWN_CHARACTERS] for card in cards[:10]) or "none"
    wanted = "several models" if served_model is None and cards else f"no model {served_model or ''}".rstrip()
    raise ConfigError(f"{server.root} serves {wanted} ({names}); choose one of them with --served-model.")


def find_dialect(name: str, card: dialects.ModelCard, root: str) -> dialects.Dialect:
    """The dialect of that name; with "auto" the one that the server's model card gives away."""
    name = card.owner if name == "auto" else name
    if name not in DIALECTS:
        raise ConfigError(
            f"{root} says that its model is owned by {card.owner[:SHOWN_CHARACTERS]!r}, which names no known kind of "
            f"server; give --set dialect=NAME, one of {', '.join(DIALECTS)}."
        )
    return DIALECTS[name]()


def probe_server(client: RowClient, probe: Sequence[int]) -> Fingerprint:
    """Send a few small requests. `client` comes with a dialect and the number of tokens that the policy keeps, and
    leaves with those that work."""
    prompt = Prompt(tuple(probe), len(probe) - 1)
    client.listed = find_listed(client, prompt)
    if client.dialect.scores is not None and not lists_inside_prompts(client, Prompt(prompt.token_ids, 0)):
        client.dialect.scores = None
    ((row,),) = client.rows([prompt])
    return Fingerprint(prompt, row)


def find_listed(client: RowClient, prompt: Prompt) -> int:
    """How many tokens the server lists: what is wanted, or the largest number it names in a refusal or lists."""
    wanted = min(client.listed, client.vocab_size)
    while wanted >= 1:
        try:
            (places,) = client.listings([prompt], listed=wanted)
        except RequestRejected as refusal:
            numbers = [int(number) for number in re.findall(r"\d+", str(refusal).partition("answered")[2])]
            wanted = max((number for number in numbers if 0 < number < wanted), default=0)
            if not wanted:
                raise
            continue
        count = len(places[0])
        if count >= wanted:
            return wanted
        # The sampled token may come in addition to the list.
        wanted = count - 1
    raise EndpointError(f"{client.server.root} lists no tokens with their probabilities; use another server.")


def lists_inside_prompts(client: RowClient, chain: Prompt) -> bool:
    """Whether lists for places inside a prompt agree with those of prompts of their own: an answer that is off by one
    place has the right shape too."""
    expected = [row for (row,) in client.rows(chain.single())]
    try:
        (places,) = client.listings([chain])
    except (AnswerUnreadable, RequestRejected):
        return False
    try:
        rows = [client.row_of(place) for place in places]
    except EndpointError:  # no probabilities, or too few
        return False
    return all(largest_change(one, row) <= SAME_MODEL_TOLERANCE for one, row in zip(expected, rows, strict=True))


def largest_change(one: Row, other: Row) -> float:
    """Of a likely token's log-probability, in nat. A token that a list leaves out has at most the least value in it,
    and no more than all listed ones leave."""

    def largest_fall(before: Row, after: Row) -> float:
        values = after.by_token
        rest = math.log(max(MIN_REST, 1.0 - math.fsum(map(math.exp, values.values()))))
        unlisted = min(rest, *values.values())
        likely = [(token, value) for token, value in before.by_token.items() if value >= LIKELY]
        return max((value - values.get(token, unlisted) for token, value in likely), default=0.0)

    return max(largest_fall(one, other), largest_fall(other, one))


def require_same_model(before: Row, now: Row, root: str) -> None:
    """Refuse a server that serves another model than the one that answered first."""
    change = largest_change(before, now)
    if change > SAME_MODEL_TOLERANCE:
        raise EndpointError(
            f"{root} does not answer as it did when this run was begun: after the same text a likely token's "
            f"log-probability is {change:.2f} nat away. Serve the first model again, or choose another --out."
        )


def round_trip(
    server: Server, dialect: dialects.Dialect, tokenizing: Tokenizing, *, model: str, texts: Sequence[str]
) -> str:
    """Refuse a tokenizer that is not the server's. Returns how it was checked."""

    def token_ids(answer: Any) -> list[int]:
        return [dialects.token_id(token) for token in dialects.items(dialects.field(answer, "tokens"), "tokens")]

    for text in (*ROUND_TRIP_TEXTS, *texts):
        try:
            theirs = server.request("/tokenize", dialect.tokenize_body(text, model=model), token_ids)
        except NothingThere:
            return "not checked: the server has no /tokenize"
        (ours,) = tokenizing.encode_batch([text])
        if list(ours.ids) != theirs:
            raise ConfigError(
                f"the tokenizer given is not the one that {server.root} uses: {text[:40]!r} is {list(ours.ids)[:8]} "
                f"here and {theirs[:8]} there; give the --tokenizer of the model that is served."
            )
    return f"{len(ROUND_TRIP_TEXTS) + len(texts)} texts gave the same tokens"


class RepeatCheck:
    """A cache that finds nothing, so that every prompt is requested again, and compares the answers with the first."""

    def __init__(self, first: RowCache) -> None:
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
