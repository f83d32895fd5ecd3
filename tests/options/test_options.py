"""One option mechanism: the type of a field decides its flag, its choices and what fits; a misfit is one sentence."""

import math
import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.options import build, flags_of, like, option, required, settle


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Pair:
    first: int
    second: int = option(0, "", group="text", at_least=0)

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, slots=True)
class Inner:
    depth: int = option(3, "How deep.", group="search", at_least=1)

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    place: Path = required("A place.", group="text", positional=True)
    count: int = option(5, "A count.", group="search", at_least=1, at_most=9, advice="Nine is plenty.")
    cap: int | None = option(None, "A cap.", group="search")
    share: float = option(0.5, "A share.", group="search", above=0, at_most=1)
    rate: float | None = option(None, "A rate.", group="search", at_least=0)
    name: str = option("", "A name.", group="text")
    note: str | None = option(None, "A note.", group="text")
    mood: Literal["glad", "sad"] | Literal["off"] = option("glad", "A mood.", group="text")
    colour: Colour = option(Colour.RED, "A colour.", group="text")
    is_on: bool = option(False, "A switch.", group="machine")
    files: tuple[str, ...] = option((), "Files.", group="text")
    sizes: tuple[int, ...] = option((1, 2), "Sizes.", group="text", commas=True, at_least=0)
    moods: tuple[Literal["glad", "sad"], ...] = option((), "Moods.", group="text", commas=True)
    pairs: tuple[Pair, ...] = option((), "Pairs.", group="text", names="--pair")
    inner: Inner = option(Inner(), "Inside.", group="search")
    hidden: tuple[float, ...] = field(default=())

    def __post_init__(self) -> None:
        settle(self)


def toy(**values: Any) -> Toy:
    return Toy(place=Path("here"), **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    count: int = like(Toy, "count", default=7)

    def __post_init__(self) -> None:
        settle(self)


def test_flags_follow_from_types() -> None:
    shown = {entry.name: (entry.flag, entry.metavar) for entry in flags_of(Toy)}
    assert shown == {
        "place": ("--place", "PATH"),
        "count": ("--count", "INTEGER"),
        "cap": ("--cap", "INTEGER"),
        "share": ("--share", "FLOAT"),
        "rate": ("--rate", "FLOAT"),
        "name": ("--name", "TEXT"),
        "note": ("--note", "TEXT"),
        "mood": ("--mood", "[glad|sad|off]"),
        "colour": ("--colour", "[red|blue]"),
        "is_on": ("--is-on/--no-is-on", "BOOLEAN"),
        "files": ("--files", "TEXT"),
        "sizes": ("--sizes", "INTEGER,..."),
        "moods": ("--moods", "[glad|sad],..."),
        "pairs": ("--pair", "FIRST,SECOND"),
        "depth": ("--depth", "INTEGER"),
    }
    assert {entry.owner for entry in flags_of(Toy)} == {None, "inner"}


def test_help_says_the_default() -> None:
    shown = {entry.name: entry.help for entry in flags_of(Toy)}
    assert shown["place"] == "A place. [required]"
    assert shown["count"] == "A count. [default: 5]"
    assert shown["cap"] == "A cap. [default: none]"
    assert shown["sizes"] == "Sizes. [default: 1,2]"
    assert shown["is_on"] == "A switch. [default: off]"
    assert shown["name"] == "A name."


@pytest.mark.parametrize(
    ("name", "value", "settled"),
    [
        ("count", "7", 7),
        ("count", " +7 ", 7),
        ("count", 7.0, 7),
        ("count", np.int64(7), 7),
        ("cap", "none", None),
        ("cap", "auto", None),
        ("cap", None, None),
        ("share", "1e-3", 0.001),
        ("share", 1, 1.0),
        ("share", np.float32(0.5), 0.5),
        ("name", Path("a/b"), "a/b"),
        ("note", "none", "none"),
        ("note", "auto", "auto"),
        ("place", "a", Path("a")),
        ("mood", "off", "off"),
        ("colour", "blue", Colour.BLUE),
        ("is_on", "yes", True),
        ("is_on", "Off", False),
        ("files", "a, b", ("a, b",)),
        ("files", ["a", Path("b")], ("a", "b")),
        ("sizes", "3, 4,", (3, 4)),
        ("sizes", ["3", "4,5"], (3, 4, 5)),
        ("sizes", [], ()),
        ("moods", "sad", ("sad",)),
        ("pairs", ["1,2", (3, 4), {"first": 5}, Pair(6)], (Pair(1, 2), Pair(3, 4), Pair(5), Pair(6))),
        ("inner", {"depth": "4"}, Inner(4)),
        ("hidden", ["0.5"], (0.5,)),
    ],
)
def test_a_value_gets_the_type_of_its_field(name: str, value: Any, settled: Any) -> None:
    found = getattr(Toy(**{"place": Path("here"), name: value}), name)
    assert found == settled
    assert type(found) is type(settled)


REFUSED = [
    ("count", "many", "count is 'many'; it must be a whole number."),
    ("count", 2.5, "count is 2.5; it must be a whole number."),
    ("count", "1_0", "count is '1_0'; it must be a whole number."),
    ("count", "٣", "count is '٣'; it must be a whole number."),
    ("count", True, "count is True; it must be a whole number."),
    ("count", None, "count is None; it must be a whole number."),
    ("count", math.inf, "count is inf; it must be a whole number."),
    ("count", 0, "count is 0; it must be between 1 and 9. Nine is plenty."),
    ("cap", 2**63, "cap is 9223372036854775808; it must be below 2⁶³."),
    ("cap", "9" * 400, "it must be below 2⁶³."),
    ("cap", "9" * 5000, "it must be a whole number."),
    ("share", 0, "share is 0.0; it must be above 0 and at most 1."),
    ("share", "nan", "share is nan; it must be above 0 and at most 1."),
    ("share", "hot", "share is 'hot'; it must be a number."),
    ("rate", "inf", "rate is inf; it must be a finite number."),
    ("rate", -1, "rate is -1.0; it must be 0 or more."),
    ("rate", 10**400, "it must be a number."),
    ("note", "", "note is empty; give a value or leave it out."),
    ("note", 5, "note is 5; it must be a text."),
    ("note", "a\0b", "it must be a text."),
    ("mood", "angry", "mood is 'angry'; choose glad, sad, off."),
    ("mood", ["glad"], "mood is ['glad']; choose glad, sad, off."),
    ("colour", "green", "colour is 'green'; choose red, blue."),
    ("is_on", "maybe", "is-on is 'maybe'; it must be true or false."),
    ("is_on", 1, "is-on is 1; it must be true or false."),
    ("files", 5, "files is 5; it must be a list."),
    ("files", {"a": 1}, "files is {'a': 1}; it must be a list."),
    ("files", [""], "files holds an empty text; leave it out."),
    ("sizes", "1,x", "sizes holds 'x'; it must be a whole number."),
    ("sizes", "1,-1", "sizes holds -1; it must be 0 or more."),
    ("moods", "glad,angry", "moods holds 'angry'; choose glad, sad."),
    ("pairs", ["1"], "pairs holds '1'; it must be 2 values: FIRST,SECOND."),
    ("pairs", ["1,-1"], "second is -1; it must be 0 or more."),
    ("inner", 3, "inner is 3; it must be a table of names and values."),
    ("inner", {"depth": 0}, "depth is 0; it must be at least 1."),
    ("inner", {"dept": 1}, "inner has the unknown option dept. Did you mean depth?"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_a_value_that_does_not_fit_gets_one_sentence(name: str, value: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        toy(**{name: value})
    assert str(error.value).endswith(sentence)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(name=st.sampled_from([entry.name for entry in flags_of(Toy) if entry.owner is None]), value=anything)
def test_any_value_is_settled_or_refused_in_one_sentence(name: str, value: Any) -> None:
    made, refusal = toy(), "."
    try:
        made = Toy(**{"place": Path("here"), name: value})
    except ConfigError as error:
        refusal = str(error)
    assert refusal.endswith(".")
    assert "\n" not in refusal
    assert toy(**{name: getattr(made, name)} if name != "place" else {}) is not None
    assert 1 <= made.count <= 9
    assert 0 < made.share <= 1
    assert made.mood in ("glad", "sad", "off")
    assert os.fspath(made.place)


def test_missing_and_unknown_names_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^place is missing; name it after the command\.$"):
        build(Toy, {}, place="toy.yaml")
    with pytest.raises(ConfigError, match=r"^toy\.yaml has the unknown option cuont\. Did you mean count\?$"):
        build(Toy, {"cuont": 1}, place="toy.yaml")
    with pytest.raises(ConfigError, match=r"unknown option zzzz\. See --help for the names\.$"):
        build(Toy, {"zzzz": 1}, place="toy.yaml")


def test_a_shared_option_keeps_its_words_and_bounds() -> None:
    (again,) = flags_of(Other)
    assert again.help == "A count. [default: 7]"
    with pytest.raises(ConfigError, match="Nine is plenty"):
        Other(count=10)
