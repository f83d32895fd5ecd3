"""Cached folders: made once, never half-made, safe for two at once."""

import errno
import multiprocessing
from pathlib import Path

import pytest

from byrote.errors import StorageError
from byrote.lab.pocket import MARKER, cached_folder, content_key, default_cache_dir


def write_weights(folder: Path) -> None:
    (folder / "weights").write_text("1 2 3")


def refuse(folder: Path) -> None:
    raise AssertionError(f"{folder} was made again")


def append_and_write(folder: Path) -> None:
    with (folder.parent / "calls").open("a") as calls:
        calls.write("made\n")
    write_weights(folder)


def make_in_another_process(cache_dir: Path) -> None:
    cached_folder(cache_dir, "model", make=append_and_write)


def test_second_call_makes_nothing(tmp_path: Path) -> None:
    first = cached_folder(tmp_path, "model", make=write_weights)
    second = cached_folder(tmp_path, "model", make=refuse)
    assert first == second == tmp_path / "model"
    assert (second / "weights").read_text() == "1 2 3"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_interrupted_making_leaves_nothing_usable(tmp_path: Path, interruption: type[BaseException]) -> None:
    def fail_half_way(folder: Path) -> None:
        write_weights(folder)
        raise interruption

    with pytest.raises(interruption):
        cached_folder(tmp_path, "model", make=fail_half_way)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    folder = cached_folder(tmp_path, "model", make=append_and_write)
    assert (tmp_path / "calls").read_text() == "made\n"
    assert (folder / "weights").read_text() == "1 2 3"


@pytest.mark.parametrize("damage", ["missing", "truncated", "no marker", "broken marker"])
def test_a_damaged_folder_is_made_again(tmp_path: Path, damage: str) -> None:
    folder = cached_folder(tmp_path, "model", make=write_weights)
    if damage == "missing":
        (folder / "weights").unlink()
    elif damage == "truncated":
        (folder / "weights").write_text("1")
    elif damage == "no marker":
        (folder / MARKER).unlink()
    else:
        (folder / MARKER).write_text("{")
    cached_folder(tmp_path, "model", make=write_weights)
    assert (folder / "weights").read_text() == "1 2 3"


def test_a_folder_left_by_a_killed_process_is_not_used(tmp_path: Path) -> None:
    """SIGKILL runs no clean-up: what stays is a folder under its temporary name."""
    (tmp_path / ".making-model-abc").mkdir()
    write_weights(tmp_path / ".making-model-abc")
    folder = cached_folder(tmp_path, "model", make=append_and_write)
    assert (tmp_path / "calls").read_text() == "made\n"
    assert (folder / "weights").read_text() == "1 2 3"


def test_processes_at_once_make_it_once_and_all_find_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        pool.map(make_in_another_process, [tmp_path] * 6)
    assert (tmp_path / "calls").read_text() == "made\n"
    cached_folder(tmp_path, "model", make=refuse)


def test_an_unusable_cache_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="set BYROTE_CACHE"):
        cached_folder(tmp_path / "file", "model", make=write_weights)


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    def run_out_of_space(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match=r"No space left on device.*set BYROTE_CACHE"):
        cached_folder(tmp_path, "model", make=run_out_of_space)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("BYROTE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_cache_dir() == tmp_path / "home" / ".cache" / "byrote"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "xdg" / "byrote"
    monkeypatch.setenv("BYROTE_CACHE", str(tmp_path / "own"))
    assert default_cache_dir() == tmp_path / "own"


def test_key_changes_with_any_part_of_the_content() -> None:
    keys = {content_key(content) for content in ([1, "a"], [2, "a"], [1, "b"], ["a", 1], {"a": 1})}
    assert len(keys) == 5
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})
