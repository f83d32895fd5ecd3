"""A prior run that is killed resumes; blocks of another run or damaged ones are never used; nothing is left behind."""

import os
import shutil
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from byrote.errors import RunError
from byrote.models.shared_prefix import SharedPrefixScorer
from byrote.prior import run as prior_run
from byrote.prior.run import prior_to_folder
from byrote.store.read import read_run
from byrote.store.resume import RunSession
from tests.prior.priors import Killed, KilledAfter, Silent, config, loaded, run

LEFT = {".lock", "identity.json", "manifest.json", "results.parquet"}
"""All files of a finished run."""


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four blocks for n and four for what is scored."""
    monkeypatch.setattr(prior_run, "BLOCK_PREFIXES", 4)


def killed_run(place: Path, out: Path, **changes: Any) -> list[Path]:
    """The blocks of a run that died when the calibration and half of what is scored were on the disk."""
    with pytest.raises(Killed):
        prior_to_folder(config(place, out, **changes), progress=KilledAfter(4 + 2))
    return sorted((out / "blocks").iterdir())


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_killed_run_resumes_without_repeating_finished_blocks_and_ends_in_the_same_numbers(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(place, tmp_path / "whole")
    out = tmp_path / "killed"
    kept = {file.stem for file in killed_run(place, out)}
    assert len(kept) == 4 + 2
    written: list[str] = []
    original = RunSession.write_block
    monkeypatch.setattr(RunSession, "write_block", lambda *given: (written.append(given[1]), original(*given)))
    again = run(place, out)
    assert len(written) == 2
    assert kept.isdisjoint(written)
    assert again.equals(whole)
    assert files_of(out) == LEFT
    assert prior_to_folder(config(place, out), progress=Silent())


@pytest.fixture(scope="module")
def unfinished(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`killed`, with six blocks on the disk, and `finished`, what it must end in."""
    folder = tmp_path_factory.mktemp("unfinished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_run, "BLOCK_PREFIXES", 4)
        patch.setattr(prior_run, "open_model", loaded)
        run(place, folder / "finished")
        killed_run(place, folder / "killed")
    return folder


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_block_with_a_flipped_bit_or_cut_short_is_measured_again(
    place: Path, unfinished: Path, tmp_path: Path, data: st.DataObject
) -> None:
    out = tmp_path / "damaged"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(unfinished / "killed", out)
    block = data.draw(st.sampled_from(sorted((out / "blocks").iterdir())))
    content = bytearray(block.read_bytes())
    place_of_damage = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place_of_damage] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[place_of_damage:]
    block.write_bytes(bytes(content))
    assert run(place, out).equals(read_run(unfinished / "finished").results)


def test_a_block_of_another_run_is_refused_by_name(place: Path, tmp_path: Path) -> None:
    """Two runs of the same shapes at two temperatures: only the run that a block says it is of tells them apart."""
    cold = killed_run(place, tmp_path / "cold", temperature=0.5)
    killed_run(place, tmp_path / "out")
    for block in cold:
        shutil.copy(block, tmp_path / "out" / "blocks" / block.name)
    with pytest.raises(RunError, match=rf"{cold[0].name} is not of this run"):
        run(place, tmp_path / "out")


def test_starting_over_takes_nothing_from_the_run_before(place: Path, tmp_path: Path) -> None:
    whole = run(place, tmp_path / "whole")
    killed_run(place, tmp_path / "out", temperature=0.5)
    prior_to_folder(config(place, tmp_path / "out"), progress=Silent(), fresh=True)
    assert run(place, tmp_path / "out").equals(whole)
    assert files_of(tmp_path / "out") == LEFT


def dies_at(moment: int, place: Path, out: Path) -> bool:
    """Run in a child that kills itself at that step of scoring or of putting a file on the disk; False if it ended."""
    child = os.fork()
    if child == 0:
        steps = count(1)

        def watched(original: Any) -> Any:
            def call(*given: Any, **named: Any) -> Any:
                if next(steps) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*given, **named)

            return call

        for owner, name in ((os, "replace"), (os, "fsync"), (os, "unlink"), (SharedPrefixScorer, "score")):
            setattr(owner, name, watched(getattr(owner, name)))
        prior_to_folder(config(place, out), progress=Silent())
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def test_a_run_killed_again_and_again_ends_in_the_same_rows_and_leaves_no_litter(place: Path, tmp_path: Path) -> None:
    whole = run(place, tmp_path / "whole")
    out = tmp_path / "killed"
    deaths = 0
    # Each session dies a little later than what it finds done allows; every second moment is tried from scratch too.
    for moment in range(1, 40, 2):
        deaths += dies_at(moment, place, out)
        if deaths % 3 == 0:
            shutil.rmtree(out, ignore_errors=True)
    assert deaths >= 10
    assert run(place, out).equals(whole)
    assert files_of(out) == LEFT


def test_the_same_folder_with_other_options_is_refused(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out")
    with pytest.raises(RunError, match=r"config\.temperature: 1\.0 in the run, 0\.5 now"):
        run(place, tmp_path / "out", temperature=0.5)


def test_more_draws_from_a_corpus_that_is_taken_whole_are_the_same_run(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "out")
    options = config(place, tmp_path / "out", prior_prefixes=21)
    assert prior_to_folder(options, progress=Silent())


def test_seed_decides_the_draws(place: Path, tmp_path: Path) -> None:
    first, second = (run(place, tmp_path / name, seed=seed, stride_chars=1) for name, seed in (("a", 1), ("b", 2)))
    assert first["log_p_prior"].to_list() != second["log_p_prior"].to_list()
    assert first["log_p_conditional"].to_list() == second["log_p_conditional"].to_list()
