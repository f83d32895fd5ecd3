"""Where the `rote` command starts: signals are heard before anything that takes time is imported."""

from rote.cli.stopping import stopping_signals


def main() -> None:
    with stopping_signals():
        from rote.cli.main import main as run

        run()
