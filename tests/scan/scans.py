"""Scans of the tiny model for the tests of the whole product: one trained model, small windows, the real command."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from byrote.cli.main import main
from byrote.lab.pocket import PassageFiles, PocketModel, tiny_model
from byrote.options import flags_of
from byrote.scan.options import RunConfig

SMALL: dict[str, object] = {
    "prefix_tokens": 12,
    "suffix_tokens": 8,
    "stride_chars": 60,
    "top_k": 10,
    "beam_width": 4,
    "edit_budget": 2,
    "screen_min_windows": 4,
    "device": "cpu",
}
"""Options that make a scan small: a few seconds for every text of the tiny model."""


class TinyLab(NamedTuple):
    """The tiny model and its passages as files."""

    model: PocketModel
    files: PassageFiles


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def make_lab(factory: pytest.TempPathFactory) -> TinyLab:
    """The tiny model, trained once for all workers of a test run: the lab's cache waits for whoever trains it."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    model = tiny_model(shared / "lab-cache")
    return TinyLab(model, model.write_texts(factory.mktemp("passages")))


def make_command(capsys: pytest.CaptureFixture[str]) -> Command:
    """`byrote …` in this process, through the entry point of the console script."""

    def command(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return command


def option_arguments(options: Mapping[str, object]) -> list[str]:
    """Options of a scan on the command line. One that is None is left out; True and False become flags."""
    flags = {flag.name for flag in flags_of(RunConfig)}
    arguments: list[str] = []
    for name, value in options.items():
        label = name.replace("_", "-")
        if value is None:
            continue
        if name not in flags:
            arguments += ["--set", f"{name}={value}"]
        elif isinstance(value, bool):
            arguments.append(f"--{label}" if value else f"--no-{label}")
        else:
            arguments += [f"--{label}", str(value)]
    return arguments


def scan_arguments(
    lab: TinyLab, out: Path | str, *, texts: tuple[object, ...] | None = None, **options: object
) -> list[str]:
    """Arguments of a small scan."""
    arguments = ["scan", "--out", str(out)]
    if "model" not in options:
        arguments += ["--model", str(lab.model.path)]
    arguments += ["--text", *map(str, (lab.files.targets,) if texts is None else texts)]
    return arguments + option_arguments(SMALL | {name.replace("-", "_"): value for name, value in options.items()})
