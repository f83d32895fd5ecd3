"""Use the byrote of this Python, installed from a wheel, as a stranger would: commands, package data, run folders.

Run it with `python -I`, so that no checkout is on the path.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import byrote

COMMAND = Path(sys.executable).with_name("byrote")


def run(*arguments: str | Path, folder: Path) -> str:
    print("$ byrote", *arguments, flush=True)
    done = subprocess.run([COMMAND, *arguments], cwd=folder, capture_output=True, text=True)
    print(done.stdout[-2000:], done.stderr[-2000:], sep="", flush=True)
    assert done.returncode == 0, f"byrote {arguments[0]} exited with {done.returncode}"
    return done.stdout


def main(folder: Path) -> None:
    assert Path(sys.prefix) in Path(byrote.__file__).parents, f"byrote comes from {byrote.__file__}"
    assert byrote.__version__ == version("byrote")
    assert run("--version", folder=folder) == f"byrote {byrote.__version__}\n"
    module = [sys.executable, "-I", "-m", "byrote", "--version"]
    assert subprocess.run(module, cwd=folder, capture_output=True, text=True).stdout == f"byrote {byrote.__version__}\n"
    assert "pythia-enron" in run("recipes", folder=folder)
    assert "model:" in run("recipes", "pythia-enron", folder=folder)
    run("demo", "--out", "demo", "--stride-chars", "480", folder=folder)
    assert "certified" in run("show", "demo/run", folder=folder)
    run("report", "demo/run", folder=folder)
    assert "Verbatim extraction" in (folder / "demo/run/report/index.html").read_text(encoding="utf-8")
    model = json.loads((folder / "demo/run/manifest.json").read_text(encoding="utf-8"))["config"]["model"]
    book = folder / "book.txt"
    passages = sorted((folder / "demo/texts").rglob("prose-*.txt"))
    book.write_text(" ".join(path.read_text(encoding="utf-8") for path in passages), encoding="utf-8")
    asked = ("--profile", "gpt-4.1", "--style", "text", "--max-turns", "1", "--max-tokens", "32")
    run("audit", "--model", model, "--book", book, "--out", "audit", *asked, folder=folder)
    assert (folder / "audit/report/index.html").exists()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
