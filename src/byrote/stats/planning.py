"""What a measurement will cost and can show, before any model is loaded."""

import math
from typing import NamedTuple

from byrote.errors import ConfigError
from byrote.stats.curves import WHOLE_TOLERANCE, queries_needed


def samples_to_detect(mass: float, miss_chance: float) -> int:
    """The fewest samples that contain a hit with probability 1 − miss_chance: M ≥ ln(1/δ)/(−ln(1 − p))."""
    _check_positive_share("Mass", mass)
    _check_positive_share("Miss chance", miss_chance)
    if miss_chance == 1.0:
        return 0
    if mass == 1.0:
        return 1
    return _round_up(math.log(miss_chance) / math.log1p(-mass))


def samples_to_estimate(mass: float, relative_error: float) -> int:
    """The fewest samples whose hit share has standard error ≤ η·p: M ≥ (1 − p)/(η² p), and at least 1."""
    _check_positive_share("Mass", mass)
    if not relative_error > 0.0:
        raise ConfigError(f"Relative error {relative_error} cannot be reached; give a positive number such as 0.1.")
    return max(1, _round_up((1.0 - mass) / mass / relative_error / relative_error))


def queries_for(mass: float, p: float) -> float:
    """Queries after which a mass comes out with probability p; inf for a mass of 0."""
    return queries_needed(float(mass), p)


def greedy_evals(prefix_tokens: int, suffix_tokens: int) -> int:
    """Token evaluations of greedy decoding: a + T − 1, since the last token is never fed back."""
    _check_window(prefix_tokens, suffix_tokens)
    return prefix_tokens + suffix_tokens - 1


def teacher_forcing_evals(prefix_tokens: int, suffix_tokens: int) -> int:
    """Token evaluations of one teacher-forced pass: a + T, for any number of policies."""
    _check_window(prefix_tokens, suffix_tokens)
    return prefix_tokens + suffix_tokens


def beam_search_evals(prefix_tokens: int, suffix_tokens: int, *, beam_width: int) -> int:
    """The most token evaluations a beam search can use: a + (T − 1)B. Searches that end early use fewer."""
    _check_window(prefix_tokens, suffix_tokens)
    _check_count("Beam width", beam_width, at_least=1)
    return prefix_tokens + (suffix_tokens - 1) * beam_width


def first_pass_evals(prefix_tokens: int, suffix_tokens: int) -> int:
    """Token evaluations of a scan's first forward over prefix and suffix: a + T − 1, as nothing follows the last."""
    return greedy_evals(prefix_tokens, suffix_tokens)


def scan_evals(prefix_tokens: int, suffix_tokens: int, *, beams: int) -> int:
    """The most a scan evaluates for a window with this many beams beside its first forward: a + (T − 1)(beams + 1).

    A greedy answer is one beam; a search has `beam_width` of them, since the pinned path is that of the first forward.
    """
    return first_pass_evals(prefix_tokens, suffix_tokens) + (suffix_tokens - 1) * beams


def monte_carlo_evals(prefix_tokens: int, suffix_tokens: int, *, samples: int) -> int:
    """Token evaluations of M full samples behind a shared prefix: a + (T − 1)M."""
    _check_window(prefix_tokens, suffix_tokens)
    _check_count("Samples", samples, at_least=0)
    return prefix_tokens + (suffix_tokens - 1) * samples


def survival_floor(beam_width: int) -> float:
    """A path more probable than this at every depth is never pruned: 1/(B + 1), as at most B paths can beat it."""
    _check_count("Beam width", beam_width, at_least=1)
    return 1.0 / (beam_width + 1)


def steps_allowed(step_probability: float, threshold: float) -> int:
    """How many steps may have at most this probability while the product still reaches τ: ⌊ln τ / ln p⌋."""
    _check_positive_share("Threshold", threshold)
    if not 0.0 < step_probability < 1.0:
        raise ConfigError(f"Step probability {step_probability} is outside (0, 1); only lower ones limit the steps.")
    return _round_down(math.log(threshold) / math.log(step_probability))


def steps_allowed_at_rank(rank: int, threshold: float) -> int:
    """How many tokens may have this rank or a worse one at τ: the token of rank r has probability at most 1/r."""
    _check_count("Rank", rank, at_least=2)
    return steps_allowed(1.0 / rank, threshold)


def geometric_mean_floor(threshold: float, suffix_tokens: int) -> float:
    """The geometric mean of the step probabilities of a suffix that just reaches τ: τ^(1/T)."""
    _check_positive_share("Threshold", threshold)
    _check_count("Suffix length", suffix_tokens, at_least=1)
    return math.exp(math.log(threshold) / suffix_tokens)


def _round_up(number: float) -> int:
    """The next whole number, where rounding noise does not count as an excess."""
    if math.isinf(number):
        raise ConfigError("The mass is too small: the number of samples exceeds every float. Plan for a larger mass.")
    nearest = round(number)
    return nearest if abs(number - nearest) <= WHOLE_TOLERANCE * number else math.ceil(number)


def _round_down(number: float) -> int:
    nearest = round(number)
    return nearest if abs(number - nearest) <= WHOLE_TOLERANCE * number else math.floor(number)


def _check_positive_share(name: str, value: float) -> None:
    if not 0.0 < value <= 1.0:
        raise ConfigError(f"{name} {value} is outside (0, 1]; use for example 0.001.")


def _check_window(prefix_tokens: int, suffix_tokens: int) -> None:
    _check_count("Prefix length", prefix_tokens, at_least=0)
    _check_count("Suffix length", suffix_tokens, at_least=1)


def _check_count(name: str, value: int, *, at_least: int) -> None:
    if value < at_least:
        raise ConfigError(f"{name} {value} is too small; give {at_least} or more.")


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
