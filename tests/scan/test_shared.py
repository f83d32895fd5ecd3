"""A control that shares a passage with a target: found, told, and left out of the control's rates unless asked for."""

import json
from pathlib import Path

import polars as pl

from tests.scan.scans import Command, TinyLab, scan_arguments


def write_texts(lab: TinyLab, folder: Path) -> tuple[Path, Path, str]:
    """A target, a control with a passage of it between passages of its own, and the passage."""
    targets = [path.read_text(encoding="utf-8") for path in sorted(lab.files.targets.rglob("*.txt"))]
    controls = [path.read_text(encoding="utf-8") for path in sorted(lab.files.controls.rglob("*.txt"))]
    target, control = folder / "target.txt", folder / "control.txt"
    target.write_text("\n".join(targets[:3]), encoding="utf-8")
    control.write_text("\n".join([controls[0], targets[1], controls[1]]), encoding="utf-8")
    return target, control, targets[1]


def test_a_shared_passage_is_found_told_and_left_out(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    target, control, passage = write_texts(lab, tmp_path)
    options = {"texts": (target,), "measures": "verbatim", "control": control}
    assert byrote(*scan_arguments(lab, tmp_path / "run", **options)).code == 0
    rows = pl.read_parquet(tmp_path / "run" / "results.parquet")
    controls = rows.filter(pl.col("split") == "control")
    shared = controls.filter(pl.col("shared_with").is_not_null())
    start = control.read_text(encoding="utf-8").index(passage)
    inside = (pl.col("suffix_char_start") >= start) & (pl.col("char_end") <= start + len(passage))
    assert shared["shared_with"].unique().to_list() == ["target.txt"]
    assert controls.filter(inside & pl.col("shared_with").is_null()).is_empty()
    assert 0 < shared.height < controls.height
    assert rows.filter(pl.col("split") == "target")["shared_share"].null_count() == rows.height - controls.height

    totals = json.loads((tmp_path / "run" / "manifest.json").read_text())["totals"]["shared"]
    assert totals["windows"] == shared.height
    assert totals["control_windows"] == controls.height
    assert totals["pairs"] == [{"control": "control.txt", "target": "target.txt", "windows": shared.height}]
    shown = " ".join(byrote("show", tmp_path / "run").out.split())
    assert f"{shared.height} of {controls.height} control windows share their passage with target texts" in shown
    assert "are left out of the control's rates" in shown

    assert byrote(*scan_arguments(lab, tmp_path / "kept", **options, keep_shared=True)).code == 0
    assert "are counted among the controls" in " ".join(byrote("show", tmp_path / "kept").out.split())
