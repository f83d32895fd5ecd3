"""Studies, gates, risks, merges, plans and endpoints: files and expressions that look right, and are something else."""

import json
import math
import random
import socket
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import input_models
import yaml
from input_options import VALUES
from tests.report.synthetic_run import books, write_run

from byrote.models.hf.model import load
from byrote.options import read_config_file
from byrote.report.gate import parse_rule
from byrote.scan.options import RunConfig
from byrote.study.plan import StudyConfig, plan_study

NAMES = ["near", "verbatim", "greedy", "NEAR", "search", "", "near ", "é"]
GROUPS = [
    "kind:phone",
    "tag:x",
    "document:a.txt",
    "split:control",
    "split:",
    ":",
    "kind",
    "kind:a b",
    "split:nothing",
    "\x1b:x",
]


def read_studies(case: Any) -> None:
    """A study's file: what is accepted has as many cells as its lists have combinations."""
    rng = case.rng
    content = _study(rng)
    text = content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True)
    path = case.folder / "study.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    case.what = text[:250]
    values = case.refuses(lambda: read_config_file(path, StudyConfig, RunConfig))
    if values is not None:
        values.pop("out", None)
        prepared = case.refuses(lambda: plan_study(values, place=str(path)))
        if prepared is not None and isinstance(content, dict):
            lists = {name.replace("-", "_"): value for name, value in content.items() if isinstance(value, list)}
            swept = [len(value) for name, value in lists.items() if name in SWEPT]
            case.expect(len(prepared.cells) == math.prod(swept), f"{len(prepared.cells)} cells")
            case.expect(len({cell.name for cell in prepared.cells}) == len(prepared.cells), "a cell twice")
    case.command("study", str(path), "--out", str(case.folder / "study"), *rng.choice([[], [], ["--fresh"], ["--x"]]))


SWEPT = (
    "model",
    "beam_width",
    "prefix_tokens",
    "suffix_tokens",
    "edit_budget",
    "top_k",
    "seed",
    "texts",
    "policy",
    "threshold",
)


def _study(rng: random.Random) -> dict[str, Any] | str:
    names = [item.name for home in (RunConfig, StudyConfig) for item in fields(home)]
    study: dict[str, Any] = {"model": rng.choice(["/none/model", ["/none/a", "/none/b"], ["/none/a", "/none/a"]])}
    study["text"] = rng.choice([*[["/none/book.txt"]] * 6, "/none/book.txt", [], None])
    for _ in range(rng.randrange(4)):
        swept = rng.sample([1, 2, 3, 5, 8, 13], k=rng.randrange(1, 4))
        study[rng.choice(SWEPT[1:7])] = rng.choice(
            [*[swept] * 9, swept[0], [], [[1]], [None], [1, 1], {"a": 1}, ["x"], [0], [2**70]]
        )
    for _ in range(rng.choice([0, 0, 1, 2])):
        study[rng.choice(names)] = rng.choice([*VALUES, 5, 0.5, True, None, [1, "a"], {"a": 1}, list(range(200))])
    if rng.random() < 0.2:
        study["published"] = rng.choice(
            [[{"measure": "near", "value": 0.1, "source": "p"}], [{}], [1], "x", {"a": 1}, [{"x": 1}]]
        )
    text = yaml.safe_dump(study, allow_unicode=True)
    if rng.random() < 0.25:
        place = rng.randrange(len(text))
        return text[:place] + rng.choice("\t:{}[]&*!|>'\"%@`#\x1b") + text[place + 1 :]
    return study


def judge_gates(case: Any) -> None:
    """Rules as they are written: what is accepted is a rate between 0 and 1, read as Python reads it."""
    rng = case.rng
    rule = _rule(rng)
    case.what = rule
    is_increase = rng.random() < 0.3
    parsed = case.refuses(lambda: parse_rule(rule, is_increase=is_increase))
    if parsed is not None:
        number = rule.strip().rpartition("=")[2]
        case.expect(parsed.limit == float(number) and 0 <= parsed.limit <= 1, f"the limit {parsed.limit}")
    run = str(_run(case.folder.parent))
    flag = "--max-increase" if is_increase else "--max-rate"
    further = rng.choice(
        [[], ["--baseline", run], ["--confidence", rng.choice(VALUES)], ["--json", f"{case.folder}/a.json"]]
    )
    if "\0" not in "".join([rule, *further]):
        case.judged("gate", run, flag, rule, *further)


def _rule(rng: random.Random) -> str:
    shapes: list[Callable[[], str]] = [
        lambda: f"{rng.choice(NAMES)}={rng.choice(VALUES)}",
        lambda: (
            f"{rng.choice(GROUPS)} {rng.choice(NAMES[:3])}={rng.choice(['0', '0.5', '1', '2', '-0.1', 'nan', 'inf'])}"
        ),
        lambda: rng.choice(VALUES),
        lambda: f"{rng.choice(NAMES)}<{rng.random()}",
        lambda: f"near=near={rng.random()}",
        lambda: f"  near={rng.random()}  ",
        lambda: "".join(chr(rng.randrange(1, 0x300)) for _ in range(rng.randrange(30))),
    ]
    return rng.choice(shapes)()


def show_risks(case: Any) -> None:
    rng = case.rng
    arguments = [str(_run(case.folder.parent)) if rng.random() < 0.8 else str(case.folder)]
    for _ in range(rng.randrange(1, 3)):
        flag = rng.choice(["--queries"] * 6 + ["--document", "--x"])
        arguments += [flag, rng.choice(["1", "100", "1e6", "2.5", rng.choice(VALUES).replace("\0", "")])]
    case.what = repr(arguments)
    case.is_refused = case.command("risk", *arguments) == 2


def merge_folders(case: Any) -> None:
    """Folders that are no shards, or not all of them, or not even folders."""
    rng = case.rng
    whole = _run(case.folder.parent)
    odd = [
        whole,
        case.folder,
        case.folder / "none",
        "/dev/null",
        case.folder / "x\x1b[31m",
        whole / "manifest.json",
        "",
    ]
    chosen = [str(rng.choice(odd)) for _ in range(rng.randrange(4))]
    out = rng.choice([case.folder / "merged", whole, case.folder / "no" / "where", "/dev/null", "/proc/x"])
    case.what = repr([str(out), *chosen])
    before = sorted(path.name for path in whole.iterdir())
    case.is_refused = case.command("merge", str(out), *chosen) == 2
    case.expect(sorted(path.name for path in whole.iterdir()) == before, "a run was changed")
    case.expect(not (case.folder / "merged" / "manifest.json").exists(), "a run was made of no shards")


def plan_sizes(case: Any) -> None:
    rng = case.rng
    arguments: list[str] = []
    flags = ["--devices", "--pilot", "--mass", "--samples", "--prefix-tokens", "--beam-width", "--set"]
    for flag in rng.sample(flags, k=rng.randrange(4)):
        arguments += [flag, rng.choice(VALUES).replace("\0", "")]
    case.what = repr(arguments)
    case.is_refused = case.command("plan", *arguments) == 2


def name_endpoints(case: Any) -> None:
    """Addresses at which nobody answers, or that are none; loopback alone is ever asked."""
    rng = case.rng
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    odd = [
        "", "http://", "https://", "ftp://127.0.0.1", "127.0.0.1", "http://127.0.0.1:99999",
        "http://[::1", "http://a b",
        "http://user:pw@127.0.0.1", "http://127.0.0.1?key=1", "http://\x1b[31m", "//127.0.0.1", "http://127.0.0.1:x",
        "\u202e", "http://127.0.0.1#x", "javascript:1", "http://127.0.0.1:0", f"http://127.0.0.1:{port}",
        f"http://127.0.0.1:{port}/v1", f"https://127.0.0.1:{port}", f"HTTP://127.0.0.1:{port}/v1/",
    ]  # fmt: skip
    text = case.folder / "text.txt"
    text.write_text("plain words " * 20, encoding="utf-8")
    whole = input_models.whole_model(case.folder.parent)
    tokenizer = rng.choice([str(whole), str(case.folder / "none"), str(text), ""])
    arguments = ["--model", f"{rng.choice(['endpoint:', 'endpoint:', 'ENDPOINT:'])}{rng.choice(odd)}"]
    arguments += ["--text", str(text), "--out", str(case.folder / "run"), "--tokenizer", tokenizer]
    flags = [
        "--concurrency",
        "--max-requests",
        "--set",
        "--key-variable",
    ]
    for flag in rng.sample(flags, k=rng.randrange(3)):
        arguments += [flag, rng.choice(VALUES).replace("\0", "")]
    case.what = repr(arguments)
    case.is_refused = case.command("scan", *arguments) == 2
    case.expect(case.is_refused, "a scan of nobody")


def load_adapters(case: Any) -> None:
    """An adapter folder with odd fields, damaged or missing weights; and models to compare with that are none."""
    rng = case.rng
    whole = input_models.whole_model(case.folder.parent)
    adapter = _adapter(case, rng)
    if rng.random() < 0.6:
        case.refuses(lambda: load(str(whole), device="cpu", adapter=str(adapter)))
        return
    text = case.folder / "text.txt"
    text.write_text("plain words " * 60, encoding="utf-8")
    other = rng.choice(
        [adapter, case.folder / "none", text, "", "\x1b[31m", "/dev/zero", "endpoint:http://127.0.0.1:1"]
    )
    case.what += f" reference {other}"
    small = [
        "--prefix-tokens",
        "4",
        "--suffix-tokens",
        "4",
        "--limit",
        "2",
        "--device",
        "cpu",
        "--measures",
        "membership",
    ]
    run = [
        "--model",
        str(whole),
        "--text",
        str(text),
        "--out",
        str(case.folder / "run"),
        "--reference-model",
        str(other),
    ]
    case.is_refused = case.command("scan", *run, *small) == 2
    # An adapter whose odd field changes nothing is a model like any other.
    case.expect(case.is_refused or other == adapter, "a comparison with no model")


def _adapter(case: Any, rng: random.Random) -> Path:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = case.folder / "adapter"
    base = AutoModelForCausalLM.from_pretrained(input_models.whole_model(case.folder.parent))
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(str(folder))
    damage = rng.randrange(4)
    if damage == 0:
        settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        name, value = rng.choice(sorted(settings)), rng.choice(input_models.VALUES)
        settings[name] = value
        (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
        case.what = f"{name}={value!r}"
    elif damage == 1:
        input_models._damage_bytes(case, folder)
    elif damage == 2:
        input_models._replace_file(case, folder)
    else:
        (folder / "adapter_model.safetensors").unlink()
        (folder / "adapter_model.bin").write_bytes(rng.choice([b"", b"\x80\x02.", b"PK\x03\x04" + bytes(50)]))
        case.what = "pickled weights"
    return folder


def _run(root: Path) -> Path:
    """A small finished scan, made once."""
    folder = root / "run-of-all"
    if not folder.exists():
        write_run(folder, books(2500)[:2], stride=60)
    return folder
