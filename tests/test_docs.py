"""The documents say what is true: links, commands, options, defaults, file maps and measured numbers are checked."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from typer.main import get_command

import byrote
from byrote.cli.main import app
from byrote.lab.texts import write_passages
from byrote.lab.train import train_tokenizer
from byrote.options import options_of
from byrote.scan.options import RunConfig
from byrote.study.plan import HOMES, StudyConfig, cell_options

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "byrote"
RESULTS = ROOT / "bench" / "results"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "bench" / "LOG.md"])

REPOSITORY = "https://github.com/byrote/byrote"
"""The README is also the page of the package and of the site, so its links are absolute; here they are files."""
AT_HOME = (f"{REPOSITORY}/blob/main/", f"{REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/")

OF_TODAY = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
"""A changelog also names what earlier versions had."""

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
each_document_of_today = pytest.mark.parametrize("path", OF_TODAY, ids=lambda path: str(path.relative_to(ROOT)))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_of(text: str) -> list[str]:
    """Lines of fenced and indented blocks, and code spans; Python blocks are left out."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for language, block in fenced if language != "python" for line in block.splitlines()]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return lines + re.findall(r"^ {4}(\S.*)$", rest, re.MULTILINE) + re.findall(r"`([^`\n]+)`", rest)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def local(url: str) -> str:
    """The path of a file of this repository."""
    for prefix in AT_HOME:
        url = url.removeprefix(prefix)
    return url


def rows_of(table: str) -> list[list[str]]:
    """Cells of the rows under the rule of a Markdown table."""
    lines = [line for line in table.strip().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[2:]]


def commands() -> dict[str, Any]:
    """The commands of `byrote --help`, by name."""
    return dict(get_command(app).commands)  # type: ignore[attr-defined]


def flags_of(command: Any) -> set[str]:
    own = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    below = getattr(command, "commands", {}).values()
    return own.union({"--help"}, *(flags_of(each) for each in below))


@each_document
def test_links_and_anchors_resolve(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", path.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")) and not target.startswith(AT_HOME):
            continue
        there = ROOT / local(target) if target.startswith(AT_HOME) else (path.parent / target).resolve()
        there = there if target else path
        assert there.exists(), f"{path.name} links to {target}, which is not there"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), (
                f"{path.name} links to {target}#{anchor}; no heading gives that anchor"
            )


def test_the_readme_leads_to_every_page() -> None:
    linked = set(map(local, re.findall(r"\]\(([^)#\s]+)", text_of("README.md"))))
    pages = {str(path.relative_to(ROOT)) for path in DOCUMENTS} - {"README.md"}
    assert pages <= linked, f"the README has no link to {sorted(pages - linked)}"


@each_document
def test_nothing_is_left_to_be_filled_in(path: Path) -> None:
    assert not re.findall(r"@[A-Z]+@|\bTODO\b|\bFIXME\b", path.read_text(encoding="utf-8"))


@each_document_of_today
def test_every_command_exists_with_the_options_it_is_shown_with(path: Path) -> None:
    known = commands()
    for code in code_of(path.read_text(encoding="utf-8")):
        for name, arguments in re.findall(r"(?:^|\s|/)byrote ([a-z][a-z-]*)\b([^#]*)", code):
            assert name in known, f"{path.name} shows `byrote {name}`; commands are {sorted(known)}"
            unknown = set(re.findall(r"--[a-z][a-z-]*", arguments)) - flags_of(known[name])
            assert not unknown, f"{path.name} gives `byrote {name}` the unknown options {sorted(unknown)}"


@each_document_of_today
def test_every_option_named_is_an_option_of_some_command(path: Path) -> None:
    known = flags_of(get_command(app))
    named = {flag for code in code_of(path.read_text(encoding="utf-8")) for flag in re.findall(r"--[a-z][a-z-]*", code)}
    assert named <= known, f"{path.name} names {sorted(named - known)}, which no command takes"


@each_document_of_today
def test_every_option_given_by_name_is_an_option_of_a_scan_or_a_study(path: Path) -> None:
    """`--set name=value`, and `name: value` as in a YAML file; an option that has a flag is not given by `--set`."""
    text = path.read_text(encoding="utf-8")
    given = {name for code in code_of(text) for name in re.findall(r"--set (\w+)=", code)}
    written = set(re.findall(r"`([a-z_]+): [^`\n]+`", text))
    known = {item.name for item in fields(StudyConfig)}.union(*map(cell_options, HOMES))
    assert given | written <= known, f"{path.name} names {sorted((given | written) - known)}, which is no option"
    with_flags = given & {flag.strip("-").replace("-", "_") for flag in flags_of(commands()["scan"])}
    assert not with_flags, f"{path.name} sets {sorted(with_flags)} by --set, which have a flag"


def test_the_guide_lists_every_command() -> None:
    table = text_of("docs/guide.md").split("| command | |")[1].split("\n\n")[0]
    assert set(re.findall(r"`byrote ([a-z][a-z-]*)`", table)) == set(commands())


def test_the_readme_names_only_what_the_python_interface_has() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", text_of("README.md"), re.MULTILINE | re.DOTALL)
    assert {"scan", "read_windows"} < set(re.findall(r"\bbyrote\.(\w+)", block)) <= set(byrote.__all__)
    compile(block, "README.md", "exec")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a reader tries the quick start: an untrained model and two short texts."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("desk")
    book, other, *more = write_passages(0, 20, least_words=80)
    (folder / "book.txt").write_text(book, encoding="utf-8")
    (folder / "other.txt").write_text(other, encoding="utf-8")
    tokenizer = train_tokenizer(more, vocabulary_size=512)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(vocab_size=512, **sizes)).save_pretrained(folder / "MODEL")
    tokenizer.save_pretrained(folder / "MODEL")
    return folder


def test_the_python_of_the_readme_runs(desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "book.txt", "other.txt"):
        (tmp_path / name).symlink_to(desk / name)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```python\n(.*?)^```", text_of("README.md"), re.MULTILINE | re.DOTALL)
    seen: dict[str, Any] = {}
    exec(block, seen)
    assert seen["frame"]["split"].unique().sort().to_list() == ["control", "target"]
    assert (tmp_path / "runs/first/manifest.json").exists()


@pytest.mark.slow
def test_the_site_builds_without_a_dead_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="an extra: pip install 'byrote[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {f"{path.stem}/index.html" for path in (ROOT / "docs").glob("*.md")} <= {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("index.html")
    }


def test_workflows_run_targets_that_exist_on_the_versions_that_are_promised() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    called: set[str] = set()
    for path in (ROOT / ".github" / "workflows").iterdir():
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        called |= {
            line.removeprefix("make ")
            for job in jobs.values()
            for step in job["steps"]
            for line in step.get("run", "").splitlines()
            if line.startswith("make ")
        }
        if path.name == "tests.yml":
            tested = set(jobs["test"]["strategy"]["matrix"]["python-version"])
    assert {"check", "test", "test-all", "package", "docs", "test-lowest"} <= called <= targets
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    promised = {line.rsplit(" ", 1)[1] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert tested == promised
    assert f"Python {min(promised, key=lambda version: int(version.split('.')[1]))} or later" in text_of("README.md")


def test_the_image_copies_files_that_exist() -> None:
    for line in re.findall(r"^COPY (.+)$", text_of("Dockerfile"), re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split()[:-1]), line


def is_default(cell: str, name: str) -> bool:
    declared = options_of(RunConfig)[name]
    default = declared.default
    if default is None:
        return cell in ("none", "all") or cell == str(declared.spec.default_words).split(",")[0]
    if isinstance(default, bool):
        return cell == ("on" if default else "off")
    return cell == (",".join(default) if isinstance(default, tuple) else str(default))


@pytest.mark.parametrize(("document", "column"), [("docs/guide.md", 0), ("docs/method.md", 1)])
def test_defaults_in_tables_are_those_of_a_run(document: str, column: int) -> None:
    checked = 0
    for table in re.findall(r"(?:^\|.*\n)+", text_of(document), re.MULTILINE):
        heads = [cell.strip() for cell in table.splitlines()[0].strip("|").split("|")]
        if heads[column : column + 2] != ["option", "default"]:
            continue
        for row in rows_of(table):
            names = [name.strip("`- ").replace("-", "_") for name in row[column].split(", ")]
            cells = row[column + 1].split(", ")
            assert len(names) == len(cells), f"{row} needs one default for each option"
            for name, cell in zip(names, cells, strict=True):
                default = options_of(RunConfig)[name].default
                assert is_default(cell, name), f"{document}: {name} is {cell}, the default is {default}"
                checked += 1
    assert checked >= 8


def test_the_tree_of_the_architecture_exists() -> None:
    block = re.findall(r"^```\n(.*?)^```", text_of("docs/architecture.md"), re.M | re.S)[0]
    assert "src/byrote/" in block
    for line in block.splitlines():
        folder = ROOT / line.split()[0]
        assert folder.is_dir(), f"the tree names {line.split()[0]}"
        for name in re.findall(r"[\w-]+(?:\.\w+|/)", line.split(maxsplit=1)[1]):
            assert (folder / name).exists(), f"the tree names {name} in {line.split()[0]}"


def rooms() -> set[str]:
    """Packages and modules of byrote itself."""
    entries = [entry for entry in SOURCE.iterdir() if not entry.name.startswith("__")]
    return {entry.name for entry in entries if entry.suffix == ".py" or (entry / "__init__.py").exists()}


def test_the_room_table_of_the_architecture_matches_the_tree() -> None:
    table = text_of("docs/architecture.md").split("| room | holds | rule |")[1].split("\n\n")[0]
    named = {name.strip("`/ ") for row in rows_of("||\n" + table) for name in row[0].split(", ")}
    assert named == rooms()


@each_document
def test_every_path_named_exists(path: Path) -> None:
    for code in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")):
        if re.fullmatch(r"[\w.-]+/[\w./-]*", code) and not code.startswith(("runs/", "report/index", "generations/")):
            places = (ROOT / code, SOURCE / code, SOURCE / "study" / code, path.parent / code)
            assert any(place.exists() for place in places), f"{path.name} names `{code}`, which is not there"


def test_every_document_that_code_refers_to_exists() -> None:
    for folder in ("src", "tests", "bench", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".yaml", ".yml", ".ipynb"):
                for name in re.findall(r"\bdocs/[\w-]+\.md", path.read_text(encoding="utf-8")):
                    assert (ROOT / name).exists(), f"{path.relative_to(ROOT)} refers to {name}"


def bench_tables() -> ModuleType:
    """bench/tables.py, which is no package."""
    spec = importlib.util.spec_from_file_location("tables", ROOT / "bench" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES = bench_tables()


@pytest.mark.parametrize(
    "found",
    [found for document in TABLES.DOCUMENTS for found in TABLES.TABLE.finditer(text_of(document))],
    ids=lambda found: found[1],
)
def test_every_measured_number_is_the_one_in_its_file(found: re.Match[str]) -> None:
    now, fresh = found[0].splitlines(), TABLES.filled(found[0]).splitlines()
    for line, filled in zip(now, fresh, strict=True):
        assert line == filled or TABLES.NOT_MEASURED in line, "run python bench/tables.py"
    if not (RESULTS / found["source"]).exists():
        for row in rows_of(found["rows"]):
            assert set(row[1:-1]) == {TABLES.NOT_MEASURED}, f"{row} holds numbers, but {found['source']} is not there"


def counts_in(value: Any) -> set[int]:
    """Every whole number in a result, and the total of every table of whole numbers."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    whole = [each for each in inner if isinstance(each, int)]
    return {*whole, sum(whole)}.union(*map(counts_in, inner))


def test_every_campaign_has_the_cases_of_its_file() -> None:
    rows = rows_of(text_of("SECURITY.md").split("## Measured")[1].split("\n## ")[0])
    assert len(rows) == 9
    for _, cases, _, source in rows:
        measured = counts_in(json.loads(text_of(source.strip("`")))) | {1}
        assert {int(number.replace(",", "")) for number in re.findall(r"[0-9,]+\b", cases)} <= measured, (cases, source)


@pytest.mark.parametrize("document", TABLES.DOCUMENTS)
def test_every_table_of_measurements_names_its_file(document: str) -> None:
    text = TABLES.TABLE.sub("", text_of(document))
    assert not re.findall(r"^\|", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("value", "cell", "filled"),
    [
        (32.187, "31.9", "32.2"),
        (2319, "1,000", "2,319"),
        (0.0783, "1.0 %", "7.8 %"),
        (480.26, "not measured yet", "480"),
        (4.2954, "not measured yet", "4.30"),
        (128, "not measured yet", "128"),
    ],
)
def test_a_number_is_filled_in_with_the_digits_of_its_cell(value: float, cell: str, filled: str) -> None:
    assert TABLES.shown(value, cell) == filled


def test_a_cell_waits_for_its_value_beside_others_that_are_filled() -> None:
    line = "| engine | not measured yet | 1.00 | `rows.0` |"
    assert TABLES.filled_row(line, {"rows": [{"b": 2.5}]}, ["a", "b"]) == line.replace("1.00", "2.50")
    measured = {"rows": [{"a": 17.25, "b": 2.5}]}
    assert TABLES.filled_row(line, measured, ["a", "b"]) == "| engine | 17.25 | 2.50 | `rows.0` |"


def test_a_wrong_number_in_a_table_is_noticed() -> None:
    text = text_of("docs/performance.md")
    assert "| 2,319 |" in text
    assert TABLES.filled(text.replace("| 2,319 |", "| 2,320 |")) == TABLES.filled(text)
    assert TABLES.filled(text).count("| 2,320 |") == 0
