"""How often a settled verdict of `byrote prior` is wrong, and how often n's interval holds what it says.

    python bench/prior_settled.py

Every study calibrates n on 18 generic texts whose log-ratios come from a known distribution, and judges a suffix whose
ratio stands a hair below or above the n of 18 other texts, where errors are easiest. P(s) is known, or estimated from
draws with P(s|q) log-normal over prefixes. The interval takes ratios as log-normal; the last distributions are not.
"""

import math
from collections.abc import Callable

import numpy as np

import environment
from byrote.prior.calibration import GenericScore, calibrate
from byrote.prior.verdicts import ratio_interval, ratio_verdict, sound_log_interval
from byrote.stats.prior_mean import PriorEstimate, PriorSums
from byrote.verdict import PriorVerdict

STUDIES = 1000
TEXTS = 18
PREFIX_SPREAD = 1.0
Draw = Callable[[np.random.Generator], np.ndarray]

DISTRIBUTIONS: dict[str, Draw] = {
    "normal, σ = 0.5": lambda generator: generator.normal(3.0, 0.5, TEXTS),
    "normal, σ = 3": lambda generator: generator.normal(3.0, 3.0, TEXTS),
    "normal, σ = 7": lambda generator: generator.normal(3.0, 7.0, TEXTS),
    "skewed to the left (negative gamma), σ = 3": lambda generator: 6.0 - generator.gamma(4.0, 1.5, TEXTS),
    "Student, 3 degrees": lambda generator: 3.0 + generator.standard_t(3, TEXTS),
    "skewed to the right (gamma), σ = 3": lambda generator: generator.gamma(4.0, 1.5, TEXTS),
}


def main() -> None:
    rows = [study(name, draw, draws=draws) for name, draw in DISTRIBUTIONS.items() for draws in (None, 1000)]
    print(environment.save("prior_settled", {"studies": STUDIES, "texts": TEXTS, "level": 0.95, "rows": rows}))


def study(name: str, draw: Draw, *, draws: int | None) -> dict[str, object]:
    generator = np.random.default_rng(7)
    covered = wrong_above = wrong_below = settled_far = 0
    for _ in range(STUDIES):
        log_n = float(np.logaddexp.reduce(draw(generator)) - math.log(TEXTS))
        priors = np.append(generator.normal(-14.0, 1.0, TEXTS), -6.0)
        ratios = draw(generator)
        *generic, mine = estimates(generator, priors, draws)
        scores = [GenericScore(float(r + v), one) for r, v, one in zip(ratios, priors, generic, strict=False)]
        interval = calibrate(4, scores).interval
        covered += interval.low <= log_n <= interval.high

        def judged(log_ratio: float, mine: PriorEstimate = mine, interval: object = interval) -> PriorVerdict:
            return ratio_verdict(ratio_interval(log_ratio - 6.0, sound_log_interval(mine)), interval)  # type: ignore[arg-type]

        wrong_above += judged(log_n - 1e-6) is PriorVerdict.MEMORIZED
        wrong_below += judged(log_n + 1e-6) is PriorVerdict.MERELY_LIKELY
        settled_far += judged(log_n + 10.0) is PriorVerdict.MEMORIZED
    row = {
        "log_ratios": name,
        "draws": draws,
        "coverage_of_n": covered / STUDIES,
        "called_memorized_wrongly": wrong_above / STUDIES,
        "called_merely_likely_wrongly": wrong_below / STUDIES,
        "settled_ten_nats_above_n": settled_far / STUDIES,
    }
    print(row, flush=True)
    return row


def estimates(generator: np.random.Generator, priors: np.ndarray, draws: int | None) -> list[PriorEstimate]:
    if draws is None:
        return PriorSums.of(priors[None], np.ones((1, 1), dtype=np.int64)).estimates(independent=math.inf)
    log_p = priors + generator.normal(-(PREFIX_SPREAD**2) / 2, PREFIX_SPREAD, (draws, len(priors)))
    return PriorSums.of(np.minimum(log_p, 0.0), np.ones((draws, 1), dtype=np.int64)).estimates()


if __name__ == "__main__":
    main()
