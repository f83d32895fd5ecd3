"""A small run of every kind, each made by the command that makes such runs: what every viewer must be able to show."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from byrote.cli import lab as lab_commands
from byrote.cli.main import main
from tests.lab.miniature import MINIATURE
from tests.longform.audits import invented_book
from tests.loopback.brains import KnowsByHeart
from tests.loopback.server import LoopbackServer
from tests.scan.scans import SMALL, TinyLab, scan_arguments


def byrote(*arguments: object) -> None:
    """A command that must succeed."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0, arguments


def make_scan(lab: TinyLab, out: Path) -> None:
    byrote(*scan_arguments(lab, out, limit=24), "--control", lab.files.controls)


def make_mc(lab: TinyLab, out: Path) -> None:
    scan = out.parent / "scan"
    make_scan(lab, scan)
    byrote("mc", scan, "--sample", 2, "--samples", 50, "--device", "cpu", "--out", out)


def make_prior(lab: TinyLab, out: Path) -> None:
    text = sorted(lab.files.targets.glob("*.txt"))[0]
    small = ["--prefix-tokens", 8, "--suffix-tokens", 4, "--prior-prefixes", 20, "--trials", 2, "--limit", 3]
    places = ["--prior-text", lab.files.controls, "--text", text, "--out", out]
    byrote("prior", "--model", lab.model.path, *places, *small, "--prefix-lengths", "4", "--device", "cpu")


def make_audit(lab: TinyLab, out: Path) -> None:
    book, small = invented_book(300), out.parent / "audit.yaml"
    (out.parent / "book.txt").write_text(book, encoding="utf-8")
    sizes = {"prefix_words": 20, "target_words": 20, "first_max_tokens": 50, "settings": {"max_tokens": 60}}
    small.write_text(json.dumps(sizes), encoding="utf-8")
    with LoopbackServer(KnowsByHeart(book)) as server:
        asked = ["--endpoint", server.url, "--model", "loopback", "--book", out.parent / "book.txt"]
        byrote("audit", *asked, "--config", small, "--out", out)


def make_recall(lab: TinyLab, out: Path) -> None:
    words = invented_book(400).split()
    book, answer = out.parent / "novel.txt", out.parent / "answer.txt"
    book.write_text(" ".join(words), encoding="utf-8")
    answer.write_text(" ".join(["Sure.", *words[20:320]]), encoding="utf-8")
    byrote("recall", "--book", book, "--generation", answer, "--out", out)


def make_counterfactual(lab: TinyLab, out: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BYROTE_CACHE", str(out.parent / "cache"))
        patch.setattr(lab_commands, "PRESETS", {"test": MINIATURE})
        byrote("lab", "counterfactual", "--preset", "test", "--processes", 1, "--out", out)


def make_study(lab: TinyLab, out: Path) -> None:
    file, small = out.parent / "study.yaml", dict(SMALL)
    places = {"model": str(lab.model.path), "text": [str(lab.files.targets)], "limit": 8}
    sampled = {"montecarlo_windows": 2, "montecarlo_samples": 40}
    file.write_text(json.dumps(small | places | sampled | {"beam_width": [1, 2]}), encoding="utf-8")
    byrote("study", file, "--out", out)


MAKERS: dict[str, Callable[[TinyLab, Path], None]] = {
    "scan": make_scan,
    "mc": make_mc,
    "prior": make_prior,
    "audit": make_audit,
    "recall": make_recall,
    "counterfactual": make_counterfactual,
    "study": make_study,
}
"""Kind → how to make a small run of it. A new kind adds its line here, and every viewer is tested on it."""


def make_every_kind(lab: TinyLab, place: Path) -> dict[str, Path]:
    runs = {}
    for kind, make in MAKERS.items():
        (place / kind).mkdir()
        runs[kind] = place / kind / "run"
        make(lab, runs[kind])
    return runs
