"""Bad input: one sentence on standard error, exit code 2, no traceback, and nothing finished is lost."""

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from byrote.cli.main import main
from byrote.models.hf import files as model_folder
from byrote.store import files as atomic
from byrote.store.resume import acquire_lock
from tests.scan.scans import Command, Outcome, TinyLab, scan_arguments


def assert_one_sentence(outcome: Outcome, *parts: str) -> None:
    """Exit code 2, nothing on standard output, and a last line on standard error that says what, which, and what to do.
    Lines before it are phases."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    *phases, sentence = outcome.err.splitlines()
    assert sentence.startswith("error: ")
    assert not any(phase.startswith(("error", "warning")) for phase in phases), outcome.err
    assert "Traceback" not in outcome.err
    for part in parts:
        assert part in outcome.err


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("The lamp stood in the window and nobody had lit it for a very long time. " * 10, encoding="utf-8")
    return path


BAD_OPTIONS: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "top-k 0": ({"top_k": 0}, ("top-k is 0", "at least 1")),
    "top-k above the vocabulary": ({"top_k": 1_000_000}, ("top-k is 1000000", "vocabulary has 768 tokens", "smaller")),
    "top-k no number": ({"top_k": "many"}, ("top-k is 'many'", "a whole number")),
    "top-k half": ({"top_k": "2.5"}, ("top-k is '2.5'", "a whole number")),
    "top-p 0": ({"top_p": 0}, ("top-p is 0.0", "above 0 and at most 1")),
    "top-p above 1": ({"top_p": 1.5}, ("top-p is 1.5", "above 0 and at most 1")),
    "top-p negative": ({"top_p": -0.5}, ("top-p is -0.5",)),
    "top-p NaN": ({"top_p": "nan"}, ("top-p is nan",)),
    "temperature 0": ({"temperature": 0}, ("temperature is 0.0", "above 0", "--top-k 1")),
    "temperature negative": ({"temperature": -1}, ("temperature is -1.0",)),
    "temperature infinite": ({"temperature": "inf"}, ("temperature is inf",)),
    "window beyond the context": (
        {"prefix_tokens": 100, "suffix_tokens": 60},
        ("160 tokens", "at most 128", "--prefix-tokens"),
    ),
    "negative budget": ({"edit_budget": -1}, ("edit-budget is -1", "0 or more")),
    "no beams": ({"beam_width": 0}, ("beam-width is 0", "at least 1")),
    "no prefix": ({"prefix_tokens": 0}, ("prefix-tokens is 0", "at least 1")),
    "no suffix": ({"suffix_tokens": 0}, ("suffix-tokens is 0", "at least 1")),
    "no stride": ({"stride_chars": 0}, ("stride-chars is 0", "at least 1")),
    "no slots": ({"slots": 0}, ("slots is 0", "at least 1")),
    "threshold 0": ({"threshold": 0}, ("threshold is 0.0", "above 0 and at most 1")),
    "threshold without a stop rule": ({"threshold": 2, "stop_rule": "off"}, ("threshold is 2.0", "at most 1")),
    "threshold without a search": ({"threshold": -1, "measures": "verbatim"}, ("threshold is -1.0", "above 0")),
    "screen share above 1": ({"screen_share": 1.5}, ("screen_share is 1.5", "between 0 and 1")),
    "screen floor NaN": ({"screen_floor": "nan"}, ("screen_floor is nan", "between 0 and 1")),
    "unknown measure": ({"measures": "greedy,magic"}, ("measures holds 'magic'", "greedy, verbatim, near")),
    "no measure": ({"measures": ","}, ("measures is empty",)),
    "unknown distance": ({"distance": "euclid"}, ("distance is 'euclid'", "levenshtein, hamming, none")),
    "unknown screen": ({"screen": "maybe"}, ("screen is 'maybe'", "auto, off")),
    "unknown device": ({"device": "toaster"}, ("'toaster' is not a device",)),
    "policy twice": ({"policies": "k=5,k=5"}, ("policies has k=5 2 times",)),
    "policy outside": ({"policies": "p=0.9"}, ("policies has p=0.9", "write k=10+p=0.9")),
    "policy too wide": ({"policies": "k=11"}, ("policies has k=11", "the 10 most likely", "--top-k")),
    "policy beside a nucleus": ({"policies": "k=5", "top_p": 0.9}, ("policies has k=5", "search without --top-p")),
    "policies of the baseline": ({"policies": "k=5", "distance": "none"}, ("policies needs a search that prunes",)),
    "bad sweep": ({"sweep": "k=10,q"}, ("sweep has 'q'", "t=0.7+k=40")),
    "unknown dtype": ({"dtype": "float8"}, ("dtype is 'float8'", "bfloat16")),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_an_option_that_cannot_work_is_refused(
    lab: TinyLab, byrote: Command, tmp_path: Path, text: Path, name: str
) -> None:
    options, parts = BAD_OPTIONS[name]
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(text,), **options))
    assert_one_sentence(outcome, *parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["model", "text", "out"])
def test_a_missing_option_is_named(lab: TinyLab, byrote: Command, tmp_path: Path, text: Path, name: str) -> None:
    given = {"model": lab.model.path, "text": text, "out": tmp_path / "run"}
    arguments = [part for option, value in given.items() if option != name for part in (f"--{option}", value)]
    assert_one_sentence(byrote("scan", *arguments), f"{name} is missing", f"--{name}")


def test_a_missing_text_is_named(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(tmp_path / "nowhere.txt",)))
    assert_one_sentence(outcome, "nowhere.txt does not exist")


def test_an_empty_text_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert_one_sentence(byrote(*scan_arguments(lab, tmp_path / "run", texts=(empty,))), "empty.txt", "empty")


def test_a_text_shorter_than_a_window_is_refused_with_the_numbers(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("Too short.", encoding="utf-8")
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(short,)))
    assert_one_sentence(outcome, "short.txt has", "12 + 8 = 20", "--prefix-tokens")


def test_a_binary_file_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    binary = tmp_path / "picture.txt"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe" * 40)
    assert_one_sentence(byrote(*scan_arguments(lab, tmp_path / "run", texts=(binary,))), "picture.txt")


def test_a_file_of_another_kind_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    page = tmp_path / "book.pdf"
    page.write_bytes(b"%PDF-1.4")
    assert_one_sentence(byrote(*scan_arguments(lab, tmp_path / "run", texts=(page,))), "book.pdf", ".txt")


def test_an_unknown_model_folder_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path, text: Path) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(text,), model=tmp_path / "nothing"))
    assert_one_sentence(outcome, "no model folder at", "nothing", "hub id")


def test_a_folder_that_holds_no_model_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path, text: Path) -> None:
    (tmp_path / "model").mkdir()
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(text,), model=tmp_path / "model"))
    assert_one_sentence(outcome, "could not be loaded as a causal language model")


def test_an_adapter_without_peft_says_what_to_install(
    lab: TinyLab, byrote: Command, tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "base"}')
    monkeypatch.setattr(model_folder, "find_spec", lambda name: None)
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", texts=(text,), model=folder))
    assert_one_sentence(outcome, "adapter holds a PEFT adapter", "pip install 'byrote[peft]'")


def test_an_output_below_a_file_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path, text: Path) -> None:
    outcome = byrote(*scan_arguments(lab, text / "run", texts=(text,)))
    assert_one_sentence(outcome, "Cannot use", "--out")


def test_an_output_that_is_a_file_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path, text: Path) -> None:
    before = text.read_bytes()
    assert_one_sentence(byrote(*scan_arguments(lab, text, texts=(text,))), "Cannot use", "--out")
    assert text.read_bytes() == before


@pytest.mark.parametrize("fresh", [(), ("--fresh",)], ids=["resume", "fresh"])
def test_a_folder_of_others_is_refused_and_left_alone(
    lab: TinyLab, byrote: Command, tmp_path: Path, text: Path, fresh: tuple[str, ...]
) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("mine", encoding="utf-8")
    outcome = byrote(*scan_arguments(lab, folder, texts=(text,)), *fresh)
    assert_one_sentence(outcome, "is not empty and holds no byrote run", "chapter.tex", "--out")
    assert [path.name for path in folder.iterdir() if path.name != ".lock"] == ["chapter.tex"]


def test_an_unknown_flag_is_refused(byrote: Command) -> None:
    outcome = byrote("scan", "--beam-with", 3)
    assert outcome.code == 2
    assert "--beam-with" in outcome.err
    assert "Traceback" not in outcome.err


def test_an_unknown_key_of_the_configuration_is_refused_with_a_suggestion(byrote: Command, tmp_path: Path) -> None:
    config = tmp_path / "scan.yaml"
    config.write_text("beam_with: 3\n", encoding="utf-8")
    outcome = byrote("scan", "--config", config)
    assert_one_sentence(outcome, "unknown option beam_with", "Did you mean beam_width?")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("top_k: [1, 2]\n", "top-k is ['1', '2']"),
        ("pin: maybe\n", "true or false"),
        ("temperature: yes\n", "temperature is 'yes'"),
        ("- a\n- b\n", "must be a mapping"),
        ("a: b: c\n", "not valid YAML"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(
    byrote: Command, tmp_path: Path, content: str, part: str
) -> None:
    config = tmp_path / "scan.yaml"
    config.write_text(content, encoding="utf-8")
    assert_one_sentence(byrote("scan", "--config", config), part)


def test_a_missing_configuration_is_refused(byrote: Command, tmp_path: Path) -> None:
    assert_one_sentence(byrote("scan", "--config", tmp_path / "none.yaml"), "none.yaml cannot be read")


@pytest.fixture(scope="module")
def finished(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run over one passage."""
    out = tmp_path_factory.mktemp("finished") / "run"
    with pytest.raises(SystemExit) as ended:
        main(scan_arguments(lab, out, texts=one_passage(lab)))
    assert ended.value.code in (0, None)
    return out


def one_passage(lab: TinyLab) -> tuple[Path]:
    return (sorted(lab.files.targets.iterdir())[-1],)


def test_another_configuration_in_the_same_folder_is_refused_with_the_difference(
    lab: TinyLab, byrote: Command, finished: Path
) -> None:
    before = (finished / "results.parquet").read_bytes()
    outcome = byrote(*scan_arguments(lab, finished, texts=one_passage(lab), top_k=9, beam_width=5))
    assert_one_sentence(outcome, "config.top_k: 10 in the run, 9 now", "config.beam_width: 4 in the run, 5 now")
    assert (finished / "results.parquet").read_bytes() == before


def test_other_options_are_refused_before_the_model_is_loaded(lab: TinyLab, byrote: Command, finished: Path) -> None:
    nowhere = scan_arguments(lab, finished, model="/no/such/model", texts=one_passage(lab), top_k=9)
    assert_one_sentence(byrote(*nowhere), "there is no model folder at /no/such/model")
    outcome = byrote(*scan_arguments(lab, finished, texts=one_passage(lab), top_k=9))
    assert_one_sentence(outcome, "config.top_k: 10 in the run, 9 now")
    assert f"loading {lab.model.path}" not in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--top-k", 3, "--set", "top_k=4"), "top_k was given as a flag and with --set"),
        (("--limit", 3, "--sample", 4), "limit is 3 and sample is 4"),
        (("--config", "a.yaml", "--config", "b.yaml"), "config was given 2 times"),
        (("--model", "weights.Q4_K_M.gguf"), "weights.Q4_K_M.gguf is a GGUF file"),
    ],
)
def test_what_would_be_dropped_silently_is_refused(
    lab: TinyLab, byrote: Command, tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    command = ["scan", "--model", lab.model.path, "--text", *one_passage(lab), "--out", tmp_path / "run"]
    assert_one_sentence(byrote(*command, *arguments), words)


@pytest.mark.parametrize("arguments", [("--queries", 0), ("--probability", 1), ("--epsilon", 9)])
def test_numbers_that_show_cannot_use_are_refused(byrote: Command, finished: Path, arguments: tuple[str, int]) -> None:
    assert_one_sentence(byrote("show", finished, *arguments), f"{arguments[0].removeprefix('--')}")


def test_another_text_in_the_same_folder_is_refused_with_the_difference(
    lab: TinyLab, byrote: Command, finished: Path, tmp_path: Path
) -> None:
    changed = shutil.copy(one_passage(lab)[0], tmp_path)
    with open(changed, "a", encoding="utf-8") as file:
        file.write(" And so on.")
    outcome = byrote(*scan_arguments(lab, finished, texts=(changed,)))
    assert_one_sentence(outcome, "texts.target:prose-0064-01.txt", "in the run")


def test_another_model_in_the_same_folder_is_refused_with_the_difference(
    lab: TinyLab, byrote: Command, finished: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    other = shutil.copytree(lab.model.path, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    name = sorted(weights)[0]
    save_file({**weights, name: weights[name] + 1e-3}, other / "model.safetensors", metadata={"format": "pt"})
    outcome = byrote(*scan_arguments(lab, finished, texts=one_passage(lab), model=other))
    assert_one_sentence(outcome, "model.weights_fingerprint")


def test_a_second_process_on_one_run_is_refused(lab: TinyLab, byrote: Command, finished: Path) -> None:
    lock = acquire_lock(finished / ".lock")
    try:
        outcome = byrote(*scan_arguments(lab, finished, texts=one_passage(lab)))
    finally:
        os.close(lock)
    assert_one_sentence(outcome, "in use by process", str(os.getpid()), "--out")


@pytest.mark.parametrize("which", ["show", "export"])
def test_a_folder_that_is_no_run_is_refused(byrote: Command, tmp_path: Path, which: str) -> None:
    options = ("--format", "csv") if which == "export" else ()
    assert_one_sentence(byrote(which, tmp_path / "nothing", *options), "is not a folder")
    assert_one_sentence(byrote(which, tmp_path, *options), "holds no byrote run")


class FullDisk:
    """os.fsync that finds no room from the n-th call on."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, descriptor: int | BinaryIO) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_loses_nothing_that_was_finished(
    lab: TinyLab, byrote: Command, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up after 0, 1, 2 … writes; each time the same command goes on from what is stored."""
    arguments = scan_arguments(lab, tmp_path / "run", texts=one_passage(lab), windows_per_part=1)
    stored: list[set[str]] = [set()]
    for room in range(100):
        with monkeypatch.context() as patch:
            patch.setattr(atomic.os, "fsync", FullDisk(room))
            outcome = byrote(*arguments)
        if outcome.code == 0:
            break
        assert_one_sentence(outcome, "No space left on device")
        stored.append(windows_in_parts(tmp_path / "run"))
        assert stored[-2] <= stored[-1]
    assert len({len(windows) for windows in stored}) > 2, "the disk must fill up between parts too"
    complete = pl.read_parquet(tmp_path / "run" / "results.parquet")
    assert_frame_equal(complete, pl.read_parquet(finished / "results.parquet"))


def windows_in_parts(run: Path) -> set[str]:
    parts = sorted((run / "parts").glob("part-*.parquet"))
    return {window for part in parts for window in pl.read_parquet(part)["window_id"]}
