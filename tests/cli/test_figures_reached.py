"""Every figure that byrote can draw is drawn by some command: none is left that only a test knows."""

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import byrote
from tests.cli.every_kind import byrote as run
from tests.cli.replacing import replaced_everywhere
from tests.longform.audits import invented_book
from tests.loopback.brains import KnowsByHeart
from tests.loopback.server import LoopbackServer
from tests.scan.scans import SMALL, TinyLab, option_arguments, scan_arguments


def figure_modules() -> Iterator[str]:
    """All modules of `report/figures` and `report/analysis`, and the `figures` of every product."""
    for module in pkgutil.walk_packages(byrote.__path__, "byrote."):
        if ".report.figures." in module.name or ".report.analysis." in module.name or module.name.endswith(".figures"):
            yield module.name


def figure_functions() -> dict[str, Callable[..., Any]]:
    """Public functions that return a figure or a drawing, by name."""
    found = {}
    for name in figure_modules():
        module = importlib.import_module(name)
        for label, function in inspect.getmembers(module, inspect.isfunction):
            returned = str(inspect.signature(function).return_annotation)
            is_own = function.__module__ == name and not label.startswith("_")
            if is_own and returned.endswith((".Figure'>", ".Drawing'>")):
                found[f"{name}.{label}"] = function
    return found


def recorded(functions: dict[str, Callable[..., Any]], patch: pytest.MonkeyPatch, seen: set[str]) -> None:
    """Replace every function, wherever it was imported to, by one that takes note and calls it."""

    def wrap(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            seen.add(name)
            return function(*arguments, **named)

        return noted

    for name, function in functions.items():
        replaced_everywhere(function, wrap(name, function), patch)


def records(lab: TinyLab, path: Path) -> Path:
    """Pairs with copies, kinds and tags."""
    rows = []
    for number, passage in enumerate((*lab.model.targets, *lab.model.controls)):
        words = passage.text.split(" ")
        row = {"prefix": " ".join(words[:9]), "suffix": " " + " ".join(words[9:16]), "copies": passage.copies}
        rows.append(row | {"kind": str(passage.kind), "tags": ["even" if number % 2 else "odd"]})
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def audits(place: Path) -> None:
    """Two trials of a known book beside a control; an unknown one, with several tries of phase 1."""
    book, control = place / "book.txt", place / "control.txt"
    book.write_text(invented_book(200), encoding="utf-8")
    control.write_text(invented_book(200, seed=7), encoding="utf-8")
    sizes = {"prefix_words": 20, "target_words": 20, "first_max_tokens": 50, "settings": {"max_tokens": 60}}
    tries = {"best_of_n": 2, "authorisation": "our own loopback server"}
    cases = {"known": (invented_book(200), {"repetitions": 2}), "unknown": (invented_book(200, seed=9), tries)}
    for name, (text, options) in cases.items():
        (place / f"{name}.yaml").write_text(json.dumps(sizes | options), encoding="utf-8")
        with LoopbackServer(KnowsByHeart(text)) as server:
            asked = ["--endpoint", server.url, "--model", "loopback", "--book", book, "--control", control]
            run("audit", *asked, "--config", place / f"{name}.yaml", "--out", place / name)


def run_commands(lab: TinyLab, every_kind: dict[str, Path], place: Path) -> None:
    controls = ["--control", lab.files.controls]
    swept = {
        "sweep": "k=1,k=10,t=0.7",
        "policies": "k=5,k=10+p=0.9",
        "limit": 16,
        "measures": "greedy,verbatim,near,membership",
    }
    run(*scan_arguments(lab, place / "narrow", **swept), *controls)
    run(*scan_arguments(lab, place / "wide", **swept | {"beam-width": 8}), *controls)
    given = option_arguments({name: SMALL[name] for name in SMALL if not name.endswith(("_tokens", "_chars"))})
    source = records(lab, place / "records.jsonl")
    run("scan", "--model", lab.model.path, "--pairs", source, "--out", place / "pairs", *given)
    run("report", place / "narrow")
    run("report", place / "pairs")
    run("report", place / "narrow", place / "wide", "--out", place / "compared")
    for kind in ("mc", "prior", "recall", "counterfactual"):
        run("report", every_kind[kind], "--out", place / kind)
    audits(place)


@pytest.mark.usefixtures("unrendered")
def test_every_figure_is_drawn_by_a_command(lab: TinyLab, every_kind: dict[str, Path], tmp_path: Path) -> None:
    functions = figure_functions()
    assert len(functions) > 20
    seen: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        recorded(functions, patch, seen)
        run_commands(lab, every_kind, tmp_path)
    assert seen == set(functions)
