"""Where the `byrote` command starts: signals are heard before anything that takes time is imported."""

import os
import sys
from contextlib import suppress

from byrote.cli.exits import stopping_signals

LEAST_ADDRESS_SPACE = 4 << 30
"""A scan of a tiny model reserves 3.3 GiB on two cores. With less, libraries abort or spin instead of raising."""


def main() -> None:
    _keep_docstrings()
    _require_address_space()
    fill_standard_descriptors()
    with stopping_signals():
        from byrote.cli.main import main as run

        run()


def _keep_docstrings() -> None:
    """Start again without `-OO`: it strips docstrings, which `--help` shows and transformers builds its models from."""
    if sys.flags.optimize > 1 and os.environ.get("PYTHONOPTIMIZE") != "1":
        os.environ["PYTHONOPTIMIZE"] = "1"
        given = [argument for argument in sys.orig_argv[1:] if argument != "-OO"]
        os.execv(sys.executable, [sys.executable, *given])


def _require_address_space() -> None:
    """End with a sentence where `ulimit -v` is too tight for the libraries to be imported."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        print(
            f"error: this process may reserve {limit / 2**30:.1f} GiB of addresses (ulimit -v), and torch and polars "
            f"need {LEAST_ADDRESS_SPACE >> 30} GiB or more; raise the limit.",
            file=sys.stderr,
        )
        sys.exit(2)


def fill_standard_descriptors() -> None:
    """A closed standard stream leads nowhere from here on: the next file opened would have its number, and what a
    library prints would be written into that file."""
    with suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)
