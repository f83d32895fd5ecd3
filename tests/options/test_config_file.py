"""Configuration files: names and values as on the command line; what YAML can do beyond that is refused by name."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.options import read_config_file
from tests.options.test_options import Inner, Toy


def read(tmp_path: Path, content: str | bytes) -> dict[str, Any]:
    path = tmp_path / "toy.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_config_file(path, Toy)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("count: 7", {"count": "7"}),
        ("is-on: yes", {"is_on": "yes"}),
        ("mood: off", {"mood": "off"}),
        ("note: 0123", {"note": "0123"}),
        ("note: 12e4567", {"note": "12e4567"}),
        ("note: 2001-01-01", {"note": "2001-01-01"}),
        ("note: 9999-99-99", {"note": "9999-99-99"}),
        ("note: ~", {"note": None}),
        ("note: 'null'", {"note": "null"}),
        ("note:", {"note": None}),
        ("inner:", {}),
        ("inner: {depth: 4}", {"inner": {"depth": "4"}}),
        ("files: [a, 'b, c']", {"files": ["a", "b, c"]}),
        ('{"sizes": [1, 2], "rate": null}', {"sizes": ["1", "2"], "rate": None}),
        ("\ufeffcount: 7", {"count": "7"}),
        ("", {}),
        ("# nothing\n", {}),
    ],
)
def test_scalars_stay_text_until_their_option_reads_them(tmp_path: Path, content: str, values: dict[str, Any]) -> None:
    assert read(tmp_path, content) == values


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("- a", "must be a mapping of option names to values"),
        ("word", "must be a mapping of option names to values"),
        ("a: b: c", "is not valid YAML"),
        ("{", "is not valid YAML"),
        ("\tcount: 1", "is not valid YAML"),
        ("count: \x01", "is not valid YAML"),
        (b"count: \xff", "it is not UTF-8 text"),
        ("count: 1\ncount: 2", "gives count twice; leave one"),
        ("files: &a [x]\nsizes: *a", "uses the alias *a; write the values out"),
        ("count: !!python/object:os.system 1", "uses the tag"),
        ("count: 1\n---\ncount: 2", "holds several documents"),
        ("[a]: 1", "where an option's name should be"),
        ("~: 1", "where an option's name should be"),
        ("1: 1", "unknown option 1."),
        ("files: " + "[" * 20 + "]" * 20, "nested more than 8 levels deep"),
        ("files: " + "[" * 40_000, "nested more than 8 levels deep"),
        ("note: " + "x" * 100_000, "larger than 100,000 bytes"),
        ("x" * 900 + ": 1", "unknown option xxxx"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, content)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read: No such file or directory\.$"):
        read_config_file(tmp_path / "none.yaml", Toy)
    with pytest.raises(ConfigError, match="cannot be read: it is a folder"):
        read_config_file(tmp_path, Toy)


def test_names_of_several_dataclasses_stand_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text("count: 3\ndepth: 2\n", encoding="utf-8")
    assert read_config_file(path, Toy, Inner) == {"count": "3", "depth": "2"}


@given(st.text(alphabet=":{}[],&*!|>'\"%@`#-? \n\tabcount0123", max_size=40) | st.text(max_size=40))
def test_any_text_is_read_or_refused_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content.encode(errors="replace"))
    values: dict[str, Any] = {}
    refusal = ""
    try:
        values = read_config_file(path, Toy)
    except ConfigError as error:
        refusal = str(error)
    assert set(values) <= set(Toy.__dataclass_fields__)
    assert "\n" not in refusal
