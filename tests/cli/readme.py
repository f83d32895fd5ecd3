"""The commands of the README and what they print; `python -m tests.cli.readme` runs them and writes that anew."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(
    r"^```\n(?P<commands>(?:(?:pip|byrote) [^\n]*\n)+)```\n```\n(?P<output>.*?)```\n", re.MULTILINE | re.DOTALL
)
"""A block of commands and, right after it, a block of what the last of them prints."""


def transcript(folder: Path, **environment: str) -> list[str]:
    """For each block of the README, run in `folder`, the part of the output that the README shows."""
    shown = []
    for block in BLOCK.finditer(README.read_text(encoding="utf-8")):
        output = ""
        for line in block["commands"].splitlines():
            name, *arguments = line.split("#")[0].split()
            if name == "byrote":
                output = run(arguments, folder, environment)
        shown.append(part_shown(output))
    return shown


def run(arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "byrote", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "100", "PYTHONPATH": str(README.parent / "src")} | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def part_shown(output: str) -> str:
    """Of the demo its table, without the title; of a summary the headline and the shares."""
    lines = [line.rstrip() for line in output.splitlines()]
    places = [place for place, line in enumerate(lines) if "copies in training" in line]
    if places:
        table = [line for line in lines[places[0] :] if line]
        return "".join(f"{line[min(map(indent, table)) :]}\n" for line in table)
    headline = lines[: next(place for place, line in enumerate(lines) if line.startswith("The model was given"))]
    rest = lines[next(place for place, line in enumerate(lines) if line.startswith("Shares of windows")) :]
    return "".join(f"{line}\n" for line in [*headline, "", *rest[: rest.index("")]])


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shown = iter(transcript(Path(folder)))
    text = README.read_text(encoding="utf-8")
    README.write_text(BLOCK.sub(lambda found: f"```\n{found['commands']}```\n```\n{next(shown)}```\n", text), "utf-8")


if __name__ == "__main__":
    main()
