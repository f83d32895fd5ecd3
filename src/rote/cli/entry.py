"""Where the `rote` command starts: signals are heard before anything that takes time is imported."""

import os

from rote.cli.stopping import stopping_signals


def main() -> None:
    if int(os.environ.get("RANK") or 0) > 0:
        # Started by torchrun or by rank 0, to hold a share of rank 0's model.
        from rote.models.hf_ranks import follow

        return follow()
    with stopping_signals():
        from rote.cli.main import main as run

        run()
