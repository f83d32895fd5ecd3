"""The callback in real trainings of a very small model."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.tensor import Shard, distribute_tensor
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import byrote
from byrote.errors import ConfigError, ModelError
from byrote.integrations import transformers as integration
from byrote.integrations.transformers import MemorizationCallback
from byrote.lab.train import train_tokenizer
from byrote.report.view import load_view
from tests.report.synthetic_run import prose

pytest.importorskip("accelerate", reason="the Trainer needs accelerate, which is not installed")
TEXT, UNSEEN = prose(1, 900), prose(2, 900)
TOKENIZER = train_tokenizer([TEXT, UNSEEN], vocabulary_size=320)
SMALL: dict[str, Any] = {"prefix_tokens": 8, "suffix_tokens": 6, "stride_chars": 40, "edit_budget": 1, "top_k": 10}


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    for name, text in (("seen.txt", TEXT), ("unseen.txt", UNSEEN)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / "seen.txt", tmp_path / "unseen.txt"


def make_trainer(folder: Path, **arguments: Any) -> Trainer:
    """Sixty steps over one text, with dropout, which draws from the global random state."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENIZER), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, attention_dropout=0.1, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    ids = TOKENIZER(TEXT)["input_ids"]
    rows = [torch.tensor(ids[start : start + 48]) for start in range(0, len(ids) - 48, 12)]
    given: dict[str, Any] = {
        "output_dir": str(folder / "checkpoints"), "max_steps": 60, "learning_rate": 2e-2, "logging_steps": 20,
        "save_steps": 30, "per_device_train_batch_size": 8, "report_to": "none", "disable_tqdm": True, "use_cpu": True,
    }  # fmt: skip
    data = [{"input_ids": row, "labels": row} for row in rows]
    model = LlamaForCausalLM(config)
    return Trainer(model, TrainingArguments(**given | arguments), train_dataset=data, processing_class=TOKENIZER)


def make_windows(trainer: Trainer, texts: tuple[Path, Path]) -> byrote.Windows:
    with torch.random.fork_rng():
        model = byrote.load_model(LlamaForCausalLM(trainer.model.config), tokenizer=TOKENIZER)
    return byrote.read_windows(model, texts[0], control=texts[1], **SMALL)


def make_callback(trainer: Trainer, texts: tuple[Path, Path], out: Path, **options: Any) -> MemorizationCallback:
    return MemorizationCallback(trainer, make_windows(trainer, texts), out=out, **options)


def logged(trainer: Trainer, name: str) -> dict[int, float]:
    return {entry["step"]: entry[name] for entry in trainer.state.log_history if name in entry}


def test_every_save_is_measured_logged_and_kept_as_a_run(texts: tuple[Path, Path], tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.add_callback(make_callback(trainer, texts, tmp_path / "runs"))
    trainer.train()
    assert list(logged(trainer, "loss")) == [20, 40, 60], "logging does not swallow what the Trainer logs"
    near, newly = logged(trainer, "memorization/near"), logged(trainer, "memorization/newly_extractable")
    assert list(near) == [0, 30, 60]
    assert list(newly) == [30, 60]
    views = [load_view(tmp_path / "runs" / f"step-{step:08d}") for step in near]
    assert [view.manifest["training"] for view in views] == [{"step": 0}, {"step": 30}, {"step": 60}]
    # What was logged is what a scan of the saved checkpoint finds.
    scanned = byrote.scan(
        byrote.load_model(str(tmp_path / "checkpoints" / "checkpoint-60"), device="cpu"),
        make_windows(trainer, texts),
        **integration.PANEL,
    ).to_polars()
    targets = scanned.filter(scanned["split"] == "target")
    assert near[60] == pytest.approx((targets["mass_lower"].list.last() >= 0.001).mean())
    assert near[60] > near[0]
    certified = [
        set(
            view.results.filter(
                (view.results["mass_lower"].list.last() >= 0.001) & (view.results["split"] == "target")
            )["window_id"]
        )
        for view in views
    ]
    assert list(newly.values()) == [len(after - before) for before, after in pairwise(certified)]


def test_training_is_the_same_with_the_callback_and_without(texts: tuple[Path, Path], tmp_path: Path) -> None:
    trained = []
    for has_callback in (False, True):
        trainer = make_trainer(tmp_path / str(has_callback), save_strategy="no")
        if has_callback:
            trainer.add_callback(make_callback(trainer, texts, tmp_path / "runs", every=20))
        trainer.train()
        trained.append(trainer.model.state_dict())
        assert trainer.model.training
    assert list(logged(trainer, "memorization/near")) == [0, 20, 40, 60]
    assert all(torch.equal(trained[0][name], weight) for name, weight in trained[1].items())


def test_a_resumed_training_goes_on_with_the_series(texts: tuple[Path, Path], tmp_path: Path) -> None:
    first = make_trainer(tmp_path)
    first.add_callback(make_callback(first, texts, tmp_path / "runs"))
    first.train()
    again = make_trainer(tmp_path, max_steps=90)
    again.add_callback(make_callback(again, texts, tmp_path / "runs"))
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-60"))
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        f"step-{step:08d}" for step in (0, 30, 60, 90)
    ]
    assert list(logged(again, "memorization/forgotten")) == [30, 60, 90]


@pytest.mark.parametrize(("limit", "steps"), [(0.02, 30), (1.0, 60)])
def test_an_alarm_ends_training_and_nothing_else_does(
    texts: tuple[Path, Path], tmp_path: Path, limit: float, steps: int
) -> None:
    trainer = make_trainer(tmp_path)
    trainer.add_callback(make_callback(trainer, texts, tmp_path / "runs", alarm=f"near={limit}"))
    trainer.train()
    assert trainer.state.global_step == steps
    assert logged(trainer, "memorization/alarm")[steps] == (limit < 1)


def test_an_alarm_about_a_sample_allows_for_the_draw_and_the_looks(
    texts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    bracket = integration.rate_bracket

    def recorded(*given: Any, alpha: float) -> Any:
        shares.append(alpha)
        return bracket(*given, alpha=alpha)

    monkeypatch.setattr(integration, "rate_bracket", recorded)
    trainer = make_trainer(tmp_path, save_strategy="no")
    model = byrote.load_model(trainer.model, tokenizer=TOKENIZER)
    windows = byrote.read_windows(model, texts[0], sample=3, **SMALL)
    trainer.add_callback(
        MemorizationCallback(trainer, windows, out=tmp_path / "runs", every=10, alarm="near=0.3", threshold=1e-9)
    )
    trainer.train()
    assert trainer.state.global_step == 60, "three windows cannot show that more than 30 % of all are extractable"
    assert logged(trainer, "memorization/near")[60] == 1
    assert len(shares) == 7
    assert shares == sorted(shares, reverse=True)
    assert 0.7 * 0.05 < sum(shares) < 0.05


def test_weights_that_are_no_numbers_are_a_warning_and_training_goes_on(
    texts: tuple[Path, Path], tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, save_strategy="no", max_steps=2)
    callback = make_callback(trainer, texts, tmp_path / "runs")
    trainer.add_callback(callback)
    with torch.no_grad():
        trainer.model.model.norm.weight[0] = float("nan")
    with pytest.warns(UserWarning, match=r"not measured at step \d: .*not numbers"):
        trainer.train()
    assert trainer.state.global_step == 2
    assert not (tmp_path / "runs").exists()


def test_fully_sharded_training_is_refused(texts: tuple[Path, Path], tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.is_fsdp_enabled = True
    with pytest.raises(ModelError, match=r"shards its weights.*byrote scan --model"):
        make_callback(trainer, texts, tmp_path / "runs")


def test_weights_that_lie_on_a_mesh_of_devices_are_refused(texts: tuple[Path, Path], tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = distributed.init_device_mesh("cpu", (1,))
        head = trainer.model.lm_head
        head.weight = torch.nn.Parameter(distribute_tensor(head.weight.detach(), mesh, [Shard(0)]))
        with pytest.raises(ModelError, match="shards its weights"):
            MemorizationCallback(trainer, make_windows(trainer, texts), out=tmp_path / "runs")
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "every is 0"),
        ({"measures": ("greedy",)}, "needs near or verbatim"),
        ({"measures": ("verbatim",), "alarm": "near=0.1"}, "near is not measured"),
        ({"alarm": "many"}, "ends in no number"),
    ],
)
def test_options_that_cannot_work_are_refused_before_training(
    texts: tuple[Path, Path], tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_callback(make_trainer(tmp_path), texts, tmp_path / "runs", **options)


def test_an_unknown_option_of_the_scan_ends_training_at_its_first_step(
    texts: tuple[Path, Path], tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path)
    trainer.add_callback(make_callback(trainer, texts, tmp_path / "runs", edit_bugdet=3))
    with pytest.raises(ConfigError, match="edit_bugdet"):
        trainer.train()
    assert trainer.state.global_step == 0
