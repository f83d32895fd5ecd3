"""What is published: sdist and wheel hold every file of the package, one version, and a page that stands by itself."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from importlib.util import find_spec
from pathlib import Path

import pytest

import byrote

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BUILD = "import sys, setuptools.build_meta as build; getattr(build, sys.argv[1])(sys.argv[2])"


def build(what: str, *, of: Path, into: Path) -> Path:
    """As pip does, without fetching the build system."""
    done = subprocess.run([sys.executable, "-c", BUILD, what, str(into)], cwd=of, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("setuptools") is None:
        pytest.skip("setuptools is a development dependency")
    checkout = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists() and not name.startswith(("tests/", "bench/")):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_bytes((ROOT / name).read_bytes())
    return build("build_sdist", of=checkout, into=tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from the unpacked sdist, which therefore holds all that is needed."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        assert not [member.name for member in archive if member.issym() or member.islnk()]
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return zipfile.ZipFile(build("build_wheel", of=unpacked, into=tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_string(wheel.read(name).decode())


def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src" / "byrote"
    files = {path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert not [path for path in source.rglob("*") if path.is_symlink()]
    held = {name for name in wheel.namelist() if name.startswith("byrote/")}
    assert held == {path.relative_to(source.parent).as_posix() for path in files}


def test_there_is_one_version(metadata: Message) -> None:
    assert metadata["Version"] == byrote.__version__
    assert "version" not in PROJECT
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {byrote.__version__}" in changelog
    assert f"\nversion: {byrote.__version__}\n" in citation


def test_the_wheel_says_who_where_and_for_what(metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} == set(PROJECT["urls"])
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Programming Language :: Python :: 3.11" in metadata.get_all("Classifier", [])


def test_the_page_of_the_wheel_stands_by_itself() -> None:
    """A package index shows the README alone: no relative link or image leads anywhere there."""
    targets = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


@pytest.mark.parametrize("name", ["transformers", "httpx2", "polars", "typer"])
def test_libraries_that_are_reached_into_have_an_upper_bound(name: str) -> None:
    (requirement,) = [each for each in PROJECT["dependencies"] if re.match(r"[\w-]+", each)[0] == name]  # type: ignore[index]
    assert "<" in requirement


def test_every_requirement_has_a_lowest_version_and_is_pinned_where_it_is_tested() -> None:
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    extras = [each for extra in PROJECT["optional-dependencies"].values() for each in extra]
    # vLLM has an environment of its own, made by `make test-vllm`.
    pinned |= set(re.findall(r"(vllm)-cpu==", (ROOT / "Makefile").read_text()))
    for requirement in [*PROJECT["dependencies"], *extras]:
        name = re.match(r"[\w.-]+", requirement)[0].lower()  # type: ignore[index]
        assert name.replace("_", "-") in {each.replace("_", "-") for each in pinned}, (
            f"{name} is not in constraints.txt"
        )
    assert [each for each in PROJECT["dependencies"] if ">=" not in each] == []
