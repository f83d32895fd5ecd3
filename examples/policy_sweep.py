"""How extraction depends on the decoding policy: `python examples/policy_sweep.py MODEL TEXT…`.

One teacher-forced pass over the text serves all policies.
"""

import argparse
import math

import byrote
from byrote.models.scoring import score_verbatim
from byrote.policy import Policy

TOP_KS = (1, 10, 40, None)
TEMPERATURES = (0.5, 1.0, 1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder or hub id")
    parser.add_argument("text", nargs="+", help="texts to score")
    parser.add_argument("--stride-chars", type=int, default=200)
    parser.add_argument("--threshold", type=float, default=0.001)
    chosen = parser.parse_args()

    model = byrote.load_model(chosen.model)
    windows = byrote.read_windows(model, chosen.text, config=byrote.RunConfig(stride_chars=chosen.stride_chars))
    policies = [Policy(temperature, top_k) for top_k in TOP_KS for temperature in TEMPERATURES]
    scores = list(score_verbatim(model, windows, policies, batch_windows=32))

    print(f"share of {len(scores)} windows with verbatim probability ≥ {chosen.threshold:g}")
    for place, policy in enumerate(policies):
        extractable = sum(math.exp(score.log_p[place]) >= chosen.threshold for score in scores)
        print(f"{policy.describe():<28} {extractable / len(scores):.0%}")


if __name__ == "__main__":
    main()
