"""What the optional checks of a scan will cost, told before it starts."""

from byrote.scan.options import RunConfig
from byrote.stats.planning import beam_search_evals


def costs_of_checks(config: RunConfig) -> list[str]:
    """A sentence for `--verify` and for `--self-check`, where asked for."""
    sentences = []
    copy = "a copy of the weights in float32 (4 bytes a parameter) unless they are float32 already"
    if config.verify:
        tokens = config.prefix_tokens + config.suffix_tokens
        sentences.append(
            f"--verify scores continuations again, {tokens} token evaluations each, until they cover 99.9 % of a "
            f"searched window's lower bound; it needs {copy}."
        )
    if config.self_check:
        once = beam_search_evals(config.prefix_tokens, config.suffix_tokens, beam_width=config.beam_width + config.pin)
        sentences.append(
            f"--self-check searches {config.self_check:,} windows three more times, two of them one window at a time: "
            f"at most {3 * config.self_check * once:,} token evaluations; it needs {copy}."
        )
    return sentences
