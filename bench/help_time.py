"""CPU seconds until `byrote --help`, and the help of every command, has been printed, and what was imported for it.

python bench/help_time.py [--repeats 5]
"""

import argparse
import os
import subprocess
import sys
from typing import Any

from typer.main import get_command

import environment
from byrote.cli.main import app

HEAVY = ("torch", "transformers", "pyarrow", "polars", "matplotlib", "scipy")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    commands: list[list[str]] = [[], *([name] for name in get_command(app).commands)]  # type: ignore[attr-defined]
    measured: dict[str, Any] = {}
    for command in commands:
        seconds = sorted(cpu_seconds([*command, "--help"]) for _ in range(repeats))
        name = " ".join(["byrote", *command, "--help"])
        measured[name] = {"cpu_seconds": seconds[len(seconds) // 2], "heavy_imports": heavy([*command, "--help"])}
        print(name, measured[name])
    environment.save("help_time", {"repeats": repeats, "commands": measured})


def cpu_seconds(arguments: list[str]) -> float:
    """User and system time of one process from start to end."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "byrote", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return round(after.children_user + after.children_system - before.children_user - before.children_system, 2)


def heavy(arguments: list[str]) -> list[str]:
    """Packages among HEAVY that the help imports."""
    code = (
        "import sys, byrote.cli.main as main\n"
        "try:\n    main.main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    return [name for name in HEAVY if repr(name) in done.stderr]


if __name__ == "__main__":
    main()
