"""What a measurement will cost and can show, before any model is loaded."""

import math
from typing import NamedTuple

from byrote.errors import ConfigError
from byrote.stats.curves import WHOLE_TOLERANCE


def samples_to_detect(mass: float, miss_chance: float) -> int:
    """The fewest samples that contain a hit with probability 1 − miss_chance: M ≥ ln(1/δ)/(−ln(1 − p))."""
    return 1 if mass == 1.0 else _round_up(math.log(miss_chance) / math.log1p(-mass))


def samples_to_estimate(mass: float, relative_error: float) -> int:
    """The fewest samples whose hit share has standard error ≤ η·p: M ≥ (1 − p)/(η² p), and at least 1."""
    return max(1, _round_up((1.0 - mass) / mass / relative_error / relative_error))


def greedy_evals(prefix_tokens: int, suffix_tokens: int) -> int:
    """Token evaluations of greedy decoding: a + T − 1, since the last token is never fed back."""
    return prefix_tokens + suffix_tokens - 1


def teacher_forcing_evals(prefix_tokens: int, suffix_tokens: int) -> int:
    """Token evaluations of one teacher-forced pass: a + T, for any number of policies."""
    return prefix_tokens + suffix_tokens


def beam_search_evals(prefix_tokens: int, suffix_tokens: int, *, beam_width: int) -> int:
    """The most token evaluations a beam search can use: a + (T − 1)B. Searches that end early use fewer."""
    return prefix_tokens + (suffix_tokens - 1) * beam_width


def scan_evals(prefix_tokens: int, suffix_tokens: int, *, beams: int) -> int:
    """The most a scan evaluates for a window with this many beams beside its first forward: a + (T − 1)(beams + 1).

    A greedy answer is one beam; a search has `beam_width` of them, since the pinned path is that of the first forward.
    """
    return prefix_tokens + (suffix_tokens - 1) * (beams + 1)


def monte_carlo_evals(prefix_tokens: int, suffix_tokens: int, *, samples: int) -> int:
    """Token evaluations of M full samples behind a shared prefix: a + (T − 1)M."""
    return prefix_tokens + (suffix_tokens - 1) * samples


def _round_up(number: float) -> int:
    """The next whole number, where rounding noise does not count as an excess."""
    if math.isinf(number):
        raise ConfigError("The mass is too small: the number of samples exceeds any float. Plan for a larger mass.")
    nearest = round(number)
    return nearest if abs(number - nearest) <= WHOLE_TOLERANCE * number else math.ceil(number)


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


def costs_of(
    prefix: int, suffix: int, *, beam_width: int, dialect: str, per_request: int, chains_per_request: int
) -> dict[str, ServedCost]:
    """What each measure of a window adds, by its words."""
    first = first_forward(
        prefix, suffix, dialect=dialect, per_request=per_request, chains_per_request=chains_per_request
    )
    # A greedy answer is a search with one beam, if it leaves the target at its first token.
    greedy = full_search(prefix, suffix, beam_width=1, dialect=dialect, per_request=per_request)
    search = full_search(prefix, suffix, beam_width=beam_width, dialect=dialect, per_request=per_request)
    every = (first, greedy, search)
    return {
        "verbatim (any number of policies)": first,
        "greedy, at most": greedy,
        f"beam search, {beam_width} beams, at most": search,
        "all of these, at most": ServedCost(
            prompts=sum(one.prompts for one in every),
            requests=sum(one.requests for one in every),
            tokens=sum(one.tokens for one in every),
            computed=sum(one.computed for one in every),
        ),
    }


def first_forward(prefix: int, suffix: int, *, dialect: str, per_request: int, chains_per_request: int) -> ServedCost:
    """All target tokens: one prompt where the server lists places inside it, else one a place."""
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


def full_search(prefix: int, suffix: int, *, beam_width: int, dialect: str, per_request: int) -> ServedCost:
    """At most: every beam alive at every step."""
    lengths, block = range(prefix + 1, prefix + suffix), BLOCKS[dialect]
    return ServedCost(
        prompts=beam_width * len(lengths),
        requests=len(lengths) * requests_of(beam_width, per_request),
        tokens=beam_width * sum(length + 1 for length in lengths),
        computed=beam_width * sum(length - block * ((length - 1) // block) + 1 for length in lengths),
    )


def requests_of(siblings: int, per_request: int) -> float:
    """Requests for one window's prompts of one step, when many windows are searched at once."""
    whole, rest = divmod(siblings, per_request)
    return whole + (1 / math.floor(per_request / rest) if rest else 0.0)
