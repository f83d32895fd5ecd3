"""Ray workers: whoever dies, the rows are those of a scan in one process. One small cluster serves all tests."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError, ModelError
from byrote.models.hf import weights
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.load import as_language_model
from byrote.progress import SilentProgress
from byrote.scan import executors
from byrote.scan.executors import Deal, MeasuredChunk, RayExecutor, WorkerFacts
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import MeasuredWindow
from byrote.scan.run import scan_to_folder
from byrote.store.folder import RunFolder
from byrote.store.read import read_run
from tests.scan.alike import assert_same_run
from tests.scan.letters import ALPHABET, LetterWorker, letters
from tests.scan.scans import TinyLab
from tests.scan.streams import random_windows
from tests.scan.test_own_models import Bare

KILLS = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a Ray as a scan starts it, with its files in a folder of its own and nothing open to the net."""
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'byrote[ray]'")
    with executors.cluster(RunConfig(executor="ray", workers=2, gpus_per_worker=0)) as ray:
        address = ray.get_runtime_context().gcs_address
        assert address.startswith("127.")
        yield address


def test_a_cluster_of_ones_own_has_a_token_and_stays_on_the_loopback_interface(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    options = executors._own(RunConfig(executor="ray"), str(tmp_path))
    assert re.fullmatch("[0-9a-f]{64}", os.environ.pop("RAY_AUTH_TOKEN"))
    assert options["_node_ip_address"] == ("127.0.0.2" if sys.platform == "linux" else None)
    assert options["include_dashboard"] is False
    assert options["_temp_dir"] == str(tmp_path)


@pytest.fixture(scope="module")
def config(lab: TinyLab) -> RunConfig:
    """Small chunks: one slot, so four windows each."""
    return RunConfig(
        model=str(lab.model.path),
        text=(str(lab.files.targets),),
        prefix_tokens=12,
        suffix_tokens=8,
        stride_chars=50,
        top_k=10,
        beam_width=4,
        edit_budget=2,
        screen_floor=0.2,
        screen_min_windows=8,
        device="cpu",
        slots=1,
        windows_per_part=4,
    )


@pytest.fixture(scope="module")
def alone(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    return scan_to_folder(replace(config, out=str(out)), progress=SilentProgress()).path


def on_ray(config: RunConfig, out: Path, *, workers: int = 1) -> RunConfig:
    """One worker where one is enough: each takes seconds to start."""
    return replace(config, out=str(out), executor="ray", workers=workers)


def test_workers_that_are_killed_ten_times_change_nothing(
    cluster: str, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever a chunk comes back, some worker is killed in the middle of the next one. A table model, because twelve
    processes are started."""
    text = tmp_path / "text.txt"
    text.write_text("".join(random.Random(1).choices(ALPHABET, k=6000)), encoding="utf-8")
    config = replace(config, model="letters", text=(str(text),), top_k=4, prefix_tokens=6, suffix_tokens=5)
    given: dict[str, Any] = {"progress": SilentProgress(), "model": letters()}
    alone = scan_to_folder(replace(config, out=str(tmp_path / "alone")), **given).path
    chance, killed = random.Random(0), list[int]()
    received = executors._received

    def kill_someone(ray: Any, reference: Any, chunk: Any) -> Any:
        answer = received(ray, reference, chunk)
        if isinstance(answer, MeasuredChunk) and len(killed) < KILLS:
            time.sleep(chance.random() * 0.05)
            if answer.facts.process not in killed:
                killed.append(answer.facts.process)
                os.kill(killed[-1], signal.SIGKILL)
        return answer

    monkeypatch.setattr(executors, "_received", kill_someone)
    monkeypatch.setattr(executors, "Worker", LetterWorker)
    result = scan_to_folder(on_ray(config, tmp_path / "run", workers=2), **given)
    assert len(killed) == KILLS
    assert_same_run(result.path, alone)
    manifest = read_run(result.path).manifest
    assert manifest is not None
    assert len(manifest["workers"]) == 2
    screened = manifest["totals"]["screen"]
    assert 0 < screened["searched_all_the_same"] < screened["rated_below_floor"] < manifest["totals"]["windows"]


def test_a_driver_that_is_killed_and_started_again_resumes(
    cluster: str, config: RunConfig, alone: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = {"model": config.model, "text": config.text[0], "out": out, "address": cluster}
    names = ("prefix_tokens", "suffix_tokens", "stride_chars", "top_k", "beam_width", "edit_budget", "screen_floor")
    for name in (*names, "screen_min_windows", "device", "slots", "windows_per_part"):
        options[name] = getattr(config, name)
    command = [sys.executable, "-m", "byrote", "scan", "--executor", "ray"]
    driver = subprocess.Popen(
        [*command, *(word for name, value in options.items() for word in ("--set", f"{name}={value}"))]
    )
    while len(RunFolder(out).part_numbers()) < 3:
        assert driver.poll() is None, "the scan ended before it could be killed"
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    kept = read_run(out).results.height
    assert kept >= 4
    scan_to_folder(on_ray(config, out), progress=SilentProgress())
    assert_same_run(out, alone)
    assert read_run(out).manifest["timings"]["windows_resumed"] >= kept  # type: ignore[index]


def test_the_driver_has_no_weights(
    cluster: str, config: RunConfig, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("weights are read in the driver")

    monkeypatch.setattr(weights, "load_weights", refuse)
    scan_to_folder(on_ray(config, tmp_path / "run"), progress=SilentProgress())
    assert_same_run(tmp_path / "run", alone)
    ours, theirs = (read_run(run).manifest["model"] for run in (tmp_path / "run", alone))  # type: ignore[index]
    assert ours["weights_hash"] == theirs["weights_hash"]


def test_a_model_that_workers_cannot_open_is_one_sentence(cluster: str, config: RunConfig, tmp_path: Path) -> None:
    nowhere = replace(on_ray(config, tmp_path / "run"), model=str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="there is no model folder at"):
        scan_to_folder(nowhere, progress=SilentProgress())


def test_a_worker_with_another_model_is_refused(cluster: str, config: RunConfig, tmp_path: Path) -> None:
    model = load(config.model, device="cpu")
    model.model.get_output_embeddings().weight.data[0, 0] += 1
    with_other = RayExecutor(model, on_ray(config, tmp_path), windows=4)
    with pytest.raises(ModelError, match=r"has another model at .*weights_fingerprint"):
        list(with_other.run(random_windows(4)))


def test_more_workers_than_the_cluster_can_place_are_refused(cluster: str, config: RunConfig, tmp_path: Path) -> None:
    asked = replace(on_ray(config, tmp_path / "run"), workers=2, gpus_per_worker=1)
    with pytest.raises(ConfigError, match="2 workers need 2 GPUs, but the cluster has 0"):
        scan_to_folder(replace(asked, dtype="float32"), progress=SilentProgress())


@pytest.mark.parametrize(("gpus", "expected"), [(0, 0.0), (4, 1.0)])
def test_workers_have_gpus_where_there_are_some(
    gpus: int, expected: float, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this machine, where Ray is started for the run; of the cluster, where there is one."""
    asked, resources = on_ray(config, Path("run")), {"CPU": 8.0, **({"GPU": float(gpus)} if gpus else {})}
    running = SimpleNamespace(is_initialized=lambda: False, cluster_resources=lambda: resources)
    monkeypatch.setattr(executors, "_ray", lambda: running)
    monkeypatch.setattr(executors.torch.cuda, "device_count", lambda: gpus)
    assert executors.with_gpus(asked).gpus_per_worker == expected
    running.is_initialized = lambda: True
    monkeypatch.setattr(executors.torch.cuda, "device_count", lambda: 7 - gpus)
    assert executors.with_gpus(asked).gpus_per_worker == expected
    assert executors.with_gpus(replace(asked, gpus_per_worker=0.25)).gpus_per_worker == 0.25
    assert executors.with_gpus(config) is config


def test_an_object_in_memory_is_refused_because_workers_could_not_open_it(config: RunConfig) -> None:
    """One of the user's own, and one of Hugging Face for which no name is given."""
    asked = on_ray(config, Path("run"))
    with pytest.raises(ConfigError, match=r"Ray workers open a model by its name, but .* is an object of this process"):
        executors.executor_of(as_language_model(Bare(0)), asked, windows=2)
    with pytest.raises(ConfigError, match="Ray workers open a model by its name"):
        executors.executor_of(load(config.model, device="cpu"), replace(asked, model=""), windows=2)


def test_a_worker_compiles_where_its_own_share_is_long_enough(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pretended GPU: what counts are the windows of one worker."""
    compiled = list[object]()
    monkeypatch.setattr(executors, "LONG_SCAN", 2.0 * 1000 * 20 * 10)
    device = SimpleNamespace(type="cuda")
    identity = SimpleNamespace(parameters=1000)
    model: Any = Mock(spec=HuggingFaceModel, device=device, described=identity)
    for windows, mode in ((10, "auto"), (11, "auto"), (10**6, "off"), (1, "on")):
        if executors.is_compiled(model, replace(config, compile=mode), windows=windows):
            compiled.append((windows, mode))
    assert compiled == [(11, "auto"), (1, "on")]
    asked = replace(on_ray(config, Path("run")), workers=3, gpus_per_worker=0)
    assert RayExecutor(load(config.model, device="cpu"), asked, windows=10)._share == 4


@given(
    windows=st.integers(0, 40),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    seed=st.integers(0, 100),
)
def test_every_window_comes_back_once_whoever_answers_when(windows: int, sizes: list[int], seed: int) -> None:
    """Workers of several chunk sizes answer in any order, some chunks twice, and those of lost workers never."""
    chance, given_windows = random.Random(seed), random_windows(max(windows, 1))[:windows]
    deal, out, found = Deal(given_windows), list[tuple[int, Any]](), list[str]()
    lost = chance.sample(range(len(sizes)), chance.randrange(len(sizes)))
    while True:
        for worker, size in enumerate(sizes):
            while (chunk := deal.chunk_for(worker, size)) is not None:
                out.append((worker, chunk))
        if deal.is_settled:
            break
        answering = [held for held in out if held[0] not in lost]
        worker, chunk = answering[chance.randrange(len(answering))]
        out.remove((worker, chunk))
        if deal.returned(worker, chunk):
            found += [window.window_id for window in chunk.windows]
    assert sorted(found) == sorted(window.window_id for window in given_windows)


@dataclass(eq=False)
class Promised:
    """What Ray calls a reference: an answer, or None where nobody will ever give one."""

    answer: Any


class PretendedRay:
    """Of Ray what dealing out needs."""

    exceptions = SimpleNamespace(RayTaskError=RuntimeError, RayError=OSError)

    def wait(self, references: list[Promised], *, num_returns: int) -> Any:
        return [next(one for one in references if one.answer is not None)], []

    def get(self, reference: Promised) -> Any:
        return reference.answer


def pretended_actor(*, is_lost: bool) -> Any:
    """Measures at once, or is on a machine that is gone."""
    facts = WorkerFacts("here", 1, "cpu", slots=1, chunk_windows=3)

    def measure(windows: list[Any]) -> Promised:
        rows = [MeasuredWindow({"window_id": window.window_id}, []) for window in windows]
        return Promised(None if is_lost else MeasuredChunk(rows, facts, 1.0))

    prepare = SimpleNamespace(remote=lambda: Promised(None if is_lost else facts))
    return SimpleNamespace(prepare=prepare, measure=SimpleNamespace(remote=measure))


def test_workers_that_never_come_hold_up_nothing(config: RunConfig) -> None:
    """The run ends when its windows are settled, though two of three workers were never heard of."""
    windows, actors = random_windows(10), [pretended_actor(is_lost=number > 0) for number in range(3)]
    asked = replace(on_ray(config, Path("run"), workers=3), gpus_per_worker=0)
    dealing = RayExecutor(load(config.model, device="cpu"), asked, windows=10)
    measured = dealing._measure(PretendedRay(), actors, windows)
    assert [one.row["window_id"] for one in measured] == [window.window_id for window in windows]
