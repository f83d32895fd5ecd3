"""Options and configuration files with values that look like numbers, words and lists, and are something else."""

import dataclasses
import math
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from byrote.cli.commands import PlanOptions
from byrote.longform.options import AuditCommand, AuditOptions
from byrote.models.served.chat import check_endpoint
from byrote.options import Option, flags_of, gather, read_config_file, settable_of
from byrote.prior.options import PriorConfig
from byrote.scan.options import McOptions, RunConfig

VALUES = [
    "", " ", "0", "-0", "1", "-1", "2", "7", "007", "+5", "1_000", "1e3", "1E-5", "0x10", "0b1", "٣", "½", "1.0", "1.5",
    ".5", "5.", "0.5", "0.001", "inf", "-inf", "nan", "1e400", "1e-400", str(2**31), str(2**63 - 1), str(2**63),
    str(2**64), "9" * 400, "9" * 5000, "true", "yes", "off", "none", "None", "auto", "null", "~", "a,b", ",", ",,",
    "1,2", "1,,2", "[1]", "{}", "\0", "a\0b", "\x1b[2J", "\u202e", "\udcff", "é", "x" * 3000, "--top-k", "k=10", "k=0",
    "p=2", "t=nan", "k=1+k=2", "k=10+p=0.9", "=", "levenshtein", "LEVENSHTEIN", "published", "cuda:99", "cuda:-1",
    "cpu:0", "meta", "xla", "/dev/null", "/dev/zero", "(", "[z-a]", "..", "bfloat16", "float8", "greedy", "greedy,near",
    "email", "2,1,20", "2,1", "2,-1,20",
]  # fmt: skip
URLS = [
    "", "http://[::1", "http://a b", "https://", "ftp://host", "http://host:99999", "http://user:pw@host", "//host",
    "host", "http://", "http://\x1b[31m", "http://host?key=1", "http://\u202e", "javascript:1", "http://host:",
    "http://:80", "\0",
]  # fmt: skip
NEEDED: dict[type, dict[str, Any]] = {
    PriorConfig: {"model": "m", "prior_text": ["p"], "out": "o", "text": ["t"]},
    AuditCommand: {"model": "m", "book": "b", "out": "o"},
    McOptions: {"model": "m", "text": ["t"]},
}
HOMES = (RunConfig, PriorConfig, McOptions, PlanOptions, AuditCommand, AuditOptions)


def give_options(case: Any) -> None:
    """One to three flags of one command, as texts; what is accepted must be what an exact reading gives."""
    rng = case.rng
    if rng.random() < 0.05:
        case.what = url = rng.choice(URLS)
        case.expect(case.refuses(lambda: check_endpoint(url)) in (None, "http://host:"), "a URL that is none")
        return
    home = rng.choice(HOMES)
    chosen = rng.sample(settable_of(home), k=rng.randrange(1, 4))
    given: dict[str, Any] = {}
    for option in chosen:
        value = rng.choice(VALUES)
        if option.kind.base is bool:
            given[option.name] = rng.random() < 0.5
        else:
            given[option.name] = [value] if option.kind.is_list and not option.spec.commas else value
    case.what = f"{home.__name__} {given!r}"
    made = case.refuses(lambda: gather((home,), NEEDED.get(home, {}) | given, None)[0])
    for option in chosen if made is not None else ():
        holder = getattr(made, option.owner) if option.owner else made
        problem = misread(option, given[option.name], getattr(holder, option.name))
        case.expect(problem is None, f"{option.name} {given[option.name]!r}: {problem}")


def misread(option: Option, raw: Any, settled: Any) -> str | None:
    """What is wrong with a settled value, by a reading that shares no code with the one under test."""
    if settled is None:
        return None if option.kind.is_optional and str(raw).lower() in ("none", "auto") else "it became None"
    if option.kind.is_list:
        parts = [part for text in ([raw] if isinstance(raw, str) else raw) for part in text.split(",")]
        count = len([part for part in parts if part.strip()]) if option.spec.commas else len(raw)
        return None if len(settled) == count else f"{len(settled)} entries instead of {count}"
    if option.kind.choices:
        return None if str(settled) == raw and raw in option.kind.choices else "it is no choice"
    if option.kind.base is int:
        return None if Fraction(str(raw).strip()) == settled and abs(settled) < 2**63 else f"it became {settled}"
    if option.kind.base is float:
        return None if math.isfinite(settled) and float(raw) == settled else f"it became {settled}"
    return None if str(settled) == str(Path(raw) if option.kind.base is Path else raw) else f"it became {settled!r}"


def run_commands(case: Any) -> None:
    """Whole command lines: known and unknown flags, missing values, values that are flags."""
    rng = case.rng
    folder = str(case.folder)
    command = rng.choice(
        ["plan", "plan", "scan", "prior", "mc", "audit", "show", "report", "export", "recall", "lab", "x"]
    )
    homes = {"plan": PlanOptions, "scan": RunConfig, "prior": PriorConfig, "mc": McOptions, "audit": AuditOptions}
    arguments = [command]
    if command in homes:
        for option in rng.sample(flags_of(homes[command]), k=rng.randrange(4)):
            arguments.append(option.flag.split("/")[0])
            arguments += [] if option.kind.base is bool else [rng.choice(VALUES).replace("\0", "")]
    if command in ("scan", "prior", "mc"):
        text = case.folder / "text.txt"
        text.write_text("plain words " * 20, encoding="utf-8")
        arguments += ["--model", f"{folder}/none", "--text", str(text)]
        arguments += ["--out", f"{folder}/run"] if command != "mc" else []
    arguments += rng.choice(
        [[], [], ["--nothing"], ["--config"], ["--config", f"{folder}/none.yaml"], ["--", "--text"]]
    )
    arguments += (
        rng.choice([[], [rng.choice(VALUES).replace("\0", "")]]) if command in ("show", "report", "export") else []
    )
    if command in ("lab", "report") or "--help" in arguments:
        arguments = arguments[:2]
    case.what = repr(arguments)
    case.is_refused = case.command(*arguments) == 2


def read_configurations(case: Any) -> None:
    """YAML that is damaged, twice, nested, tagged or aliased; what is accepted must be what PyYAML reads."""
    rng = case.rng
    text = _yaml(rng)
    path = case.folder / "scan.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    case.what = text[:200]
    values = case.refuses(lambda: read_config_file(path, RunConfig))
    if values is not None:
        loaded = yaml.load(text, Loader=yaml.BaseLoader) or {}
        plain = {name.replace("-", "_"): value for name, value in loaded.items()}
        case.expect(plain.keys() == values.keys(), "other names")
        same = all(_same(values[name], plain[name]) for name in values)
        case.expect(same, f"other values: {values!r}")
    case.command("scan", "--config", str(path))


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return isinstance(found, list) and all(map(_same, found, expected)) and len(found) == len(expected)
    return found == expected or (found is None and expected in ("", "~", "null", "Null", "NULL"))


def _yaml(rng: random.Random) -> str:
    names = [item.name for item in dataclasses.fields(RunConfig)]
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(8)
    )
    odd = ["2001-01-01", "9999-99-99", "1:30", "0o17", "!!int 3", "&x 3", "*x", "|"]
    shapes: list[Callable[[], str]] = [
        lambda: "\n".join(f"{rng.choice(names)}: {rng.choice(VALUES)}" for _ in range(rng.randrange(1, 4))),
        lambda: yaml.safe_dump({rng.choice(names): rng.choice([*VALUES, 5, 0.5, True, None, [1, "a"], {"a": 1}])}),
        lambda: f"{rng.choice(names)}: {rng.choice(odd)}",
        lambda: bomb,
        lambda: "<<: {top_k: 3}\n" * rng.randrange(1, 3),
        lambda: f"{rng.choice(names)}: " + "[" * rng.choice([3, 50, 30_000]),
        lambda: f"{rng.choice(names)}: " + "{a: " * rng.choice([3, 50, 20_000]),
        lambda: "".join(chr(rng.randrange(1, 0x300)) for _ in range(rng.randrange(60))),
        lambda: f"top_k: {'9' * rng.choice([5, 5000])}",
        lambda: "- " * rng.choice([2, 20_000]),
        lambda: "top_k: 3\n---\ntop_k: 4\n",
        lambda: "?" * rng.choice([1, 500]) + "\n: 3",
        lambda: "x" * 150_000,
        lambda: "%YAML 9.9\n---\ntop_k: 3\n",
        lambda: f"top_k: 3\n{rng.choice(['top_k', 'top-k', 'TOP_K'])}: 4\n",
    ]
    text = rng.choice(shapes)()
    if rng.random() < 0.2 and text:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice("\t:{}[]&*!|>'\"%@`#\x00\x1b") + text[place + 1 :]
    return text
