"""What a window of a served model costs, before anything is asked: prompts, requests and tokens.

A search to full depth evaluates at most B beams at each of the T − 1 steps between the first token and the last; the
verbatim path is known from the first forward. Prompts of one step go out together, beams of one window in one request.
Servers that keep prefixes keep whole blocks of tokens: a prompt of n tokens, whose first n − 1 were a prompt before it,
makes them compute n − block·⌊(n − 1)/block⌋ tokens.
"""

import math
from typing import NamedTuple

BLOCKS = {"vllm": 16, "sglang": 1, "llamacpp": 1}
"""Tokens that a server's cache of prefixes keeps or loses together, unless it is set up otherwise."""


class ServedCost(NamedTuple):
    """Of one window. `requests` may be a fraction: several windows share a request."""

    prompts: int
    requests: float
    tokens: int
    """Sent: all tokens of all prompts, and one generated for each."""
    computed: int
    """Of these, what a server with a cache of prefixes has to compute."""

    def plus(self, other: "ServedCost") -> "ServedCost":
        return ServedCost(
            self.prompts + other.prompts,
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.computed + other.computed,
        )


def costs_of(
    prefix: int, suffix: int, *, beam_width: int, dialect: str, per_request: int, chains_per_request: int
) -> dict[str, ServedCost]:
    """What each measure of a window adds, by its words."""
    first = first_forward(
        prefix, suffix, dialect=dialect, per_request=per_request, chains_per_request=chains_per_request
    )
    greedy = greedy_decoding(prefix, suffix, dialect=dialect, per_request=per_request)
    search = full_search(prefix, suffix, beam_width=beam_width, dialect=dialect, per_request=per_request)
    return {
        "verbatim (any number of policies)": first,
        "greedy, at most": greedy,
        f"beam search, {beam_width} beams, at most": search,
        "all of these, at most": first.plus(greedy).plus(search),
    }


def first_forward(prefix: int, suffix: int, *, dialect: str, per_request: int, chains_per_request: int) -> ServedCost:
    """All target tokens: one prompt where the server tells about places inside it, else one a place."""
    whole = prefix + suffix - 1
    if dialect != "llamacpp":
        return ServedCost(1, 1 / min(per_request, chains_per_request), whole + 1, whole + 1)
    # All places of a window are siblings. The first computes the prefix, every further one its own token.
    return ServedCost(
        prompts=suffix,
        requests=requests_of(suffix, per_request),
        tokens=sum(prefix + place + 1 for place in range(suffix)),
        computed=prefix + 1 + 2 * (suffix - 1),
    )


def greedy_decoding(prefix: int, suffix: int, *, dialect: str, per_request: int) -> ServedCost:
    """At most: a greedy answer that leaves the target at its first token and is decoded to its last."""
    return _steps(prefix + 1, suffix - 1, beams=1, per_request=per_request, block=BLOCKS[dialect])


def full_search(prefix: int, suffix: int, *, beam_width: int, dialect: str, per_request: int) -> ServedCost:
    """At most: every beam alive at every step."""
    return _steps(prefix + 1, suffix - 1, beams=beam_width, per_request=per_request, block=BLOCKS[dialect])


def _steps(first: int, count: int, *, beams: int, per_request: int, block: int) -> ServedCost:
    """`beams` prompts of `first` tokens, then of one more, `count` times."""
    lengths = range(first, first + count)
    return ServedCost(
        prompts=beams * count,
        requests=count * requests_of(beams, per_request),
        tokens=beams * sum(length + 1 for length in lengths),
        computed=beams * sum(length - block * ((length - 1) // block) + 1 for length in lengths),
    )


def requests_of(siblings: int, per_request: int) -> float:
    """Requests for one window's prompts of one step, when many windows are searched at once."""
    whole, rest = divmod(siblings, per_request)
    return whole + (1 / math.floor(per_request / rest) if rest else 0.0)
