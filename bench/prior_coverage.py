"""How often the interval of log v̂ covers the truth when a few prefixes carry most of P(s).

    python bench/prior_coverage.py

P(s|q) is log-normal over prefixes: the larger sigma (in nats), the heavier the tail. The sampled interval is withheld
below a number of effective prefixes; beside it stand the same interval without that rule, and the sound one.
"""

import math

import numpy as np

import environment
from byrote.prior.verdicts import log_interval, sound_log_interval
from byrote.stats.prior_mean import PriorSums

SIGMAS = (0.5, 1.0, 2.0, 3.0, 4.0)
DRAWS = (200, 5000)
REPETITIONS = 1000
CENTRE = -60.0


def main() -> None:
    rows = []
    for draws in DRAWS:
        for sigma in SIGMAS:
            generator = np.random.default_rng([draws, int(10 * sigma)])
            truth = CENTRE + sigma**2 / 2
            covered = covered_always = covered_soundly = defined = 0
            effective = []
            log_p = generator.normal(CENTRE, sigma, (draws, REPETITIONS))
            for estimate in PriorSums.of(log_p, np.ones((draws, 1), dtype=np.int64)).estimates():
                interval = log_interval(estimate)
                effective.append(estimate.effective_prefixes)
                defined += interval.is_defined
                covered += interval.low <= truth <= interval.high
                covered_always += abs(estimate.log_mean - truth) <= 1.96 * estimate.relative_error
                sound = sound_log_interval(estimate)
                covered_soundly += sound.low <= truth <= sound.high
            rows.append(
                {
                    "draws": draws,
                    "sigma": sigma,
                    "median_effective_prefixes": float(np.median(effective)),
                    "share_defined": defined / REPETITIONS,
                    "coverage_where_defined": covered / defined if defined else math.nan,
                    "coverage_if_never_withheld": covered_always / REPETITIONS,
                    "coverage_of_the_sound_interval": covered_soundly / REPETITIONS,
                }
            )
            print(rows[-1])
    print(environment.save("prior_coverage", {"repetitions": REPETITIONS, "level": 0.95, "rows": rows}))


if __name__ == "__main__":
    main()
