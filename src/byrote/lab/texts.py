"""Invented texts that the lab trains on: people records and prose, the same bytes for one seed.

Records are full of identifiers, as a privacy audit looks for them, and none is real: towns and streets are invented,
telephone numbers have an area code that starts with 0 and the exchange 555-01 that is kept for fiction, e-mail
addresses end in the reserved domain `.example`, and account numbers start with the letters RX.

Prose is written by a small grammar: predictable in style, unpredictable in content. A passage has a cast (a hero, a
friend, a town, a treasured thing), opens, lives through deeds, talk, weather and turns of fate, and closes. Nothing in
it is copied from any book. Every sentence draws its template and its fillers anew, so that two passages practically
never share a window, while a small model soon learns the style. Words and templates are in `words.yaml`.
"""

import random
import re
from functools import cache
from importlib import resources

import yaml

GENERATOR_VERSION = 1
"""Raise it when `words.yaml` or the grammar change: every cached model that was trained on them is then made anew."""


@cache
def words() -> dict[str, list[str]]:
    """What fills every slot, and the templates of records and of every part of a passage."""
    lists: dict[str, list[str]] = yaml.safe_load(
        resources.files("byrote.lab").joinpath("words.yaml").read_text("utf-8")
    )
    return lists


def write_records(seed: int, count: int) -> list[str]:
    """`count` records with different names and account numbers. The first n of them do not depend on `count`."""
    generator = random.Random(f"lab people {seed}")
    records: list[str] = []
    taken: set[str] = set()
    while len(records) < count:
        values = _draw_values(generator)
        record = generator.choice(words()["record"]).format(**values)
        keys = {values["name"], values["account"]}
        if not keys & taken:
            taken |= keys
            records.append(record)
    return records


def _draw_values(generator: random.Random) -> dict[str, str]:
    def one(slot: str) -> str:
        return generator.choice(words()[slot])

    people = words()["woman"] + words()["man"]
    first, initial = generator.choice(people), generator.choice("ABCDEFGHJKLMNPRSTVW")
    surname, town = one("surname"), one("town")
    return {
        "name": f"{first} {initial}. {surname}",
        "birth_date": f"{generator.randint(1, 28)} {one('month')} {generator.randint(1931, 2006)}",
        "birth_town": one("town"),
        "town": town,
        "street": f"{generator.randint(1, 299)} {one('street')}",
        "telephone": _telephone(generator),
        "email": f"{first}.{surname}{generator.randint(10, 99)}@{town.split()[0]}.example".lower(),
        "account": f"RX{_digits(generator, 2)} {_digits(generator, 4)} {_digits(generator, 4)}",
        "trade": one("trade"),
        "allergy": one("allergy"),
        "kin_name": f"{generator.choice(people)} {one('surname')}",
        "kinship": one("kinship"),
        "kin_telephone": _telephone(generator),
    }


def _telephone(generator: random.Random) -> str:
    return f"0{_digits(generator, 2)}-555-01{_digits(generator, 2)}"


def _digits(generator: random.Random, count: int) -> str:
    return "".join(generator.choice("0123456789") for _ in range(count))


_MIDDLE = ("deed", "talk", "deed", "sky", "turn")
_OTHER = {"other": "thing", "other_town": "town"}
"""Slots whose words are those of another, drawn anew: a passage's own thing and town belong to its cast."""
_SLOT = re.compile(r"\{(\w+)\}")


def write_passage(generator: random.Random, *, least_words: int) -> str:
    """One passage: the fewest whole sentences from opening to ending that have at least `least_words` words."""
    cast = _draw_cast(generator)
    sentences = [_fill(generator.choice(words()["opening"]), cast, generator)]
    ending = _fill(generator.choice(words()["ending"]), cast, generator)
    words_left = least_words - len(ending.split()) - len(sentences[0].split())
    used: list[str] = []
    while words_left > 0:
        stage = words()[generator.choice(_MIDDLE)]
        fresh = [template for template in stage if template not in used] or stage
        template = generator.choice(fresh)
        used.append(template)
        sentences.append(_fill(template, cast, generator))
        words_left -= len(sentences[-1].split())
    return " ".join([*sentences, ending])


def write_passages(seed: int, count: int, *, least_words: int) -> list[str]:
    """`count` different passages. The first n of them do not depend on `count`."""
    generator = random.Random(f"lab prose {seed}")
    passages: dict[str, None] = {}
    while len(passages) < count:
        passages[write_passage(generator, least_words=least_words)] = None
    return list(passages)


def _draw_cast(generator: random.Random) -> dict[str, str]:
    """Slot → who or what the passage is about."""
    hero_is_woman = generator.random() < 0.5
    hero = generator.choice(words()["woman" if hero_is_woman else "man"])
    friend = generator.choice([name for name in words()["woman"] + words()["man"] if name != hero])
    cast = {"hero": hero, "friend": friend} | {
        slot: generator.choice(words()[slot]) for slot in ("trade", "town", "thing")
    }
    pronouns = {"He": "She", "his": "her"} if hero_is_woman else {"He": "He", "his": "his"}
    return cast | pronouns | {"a_thing": with_article(cast["thing"])}


def _fill(template: str, cast: dict[str, str], generator: random.Random) -> str:
    def value_of(match: re.Match[str]) -> str:
        slot = match.group(1)
        if slot in cast:
            return cast[slot]
        if slot == "a_other":
            return with_article(generator.choice(words()["thing"]))
        name = slot.removesuffix("_cap").lower()
        value = generator.choice(words()[_OTHER.get(name, name)])
        return value if slot == name else value[0].upper() + value[1:]

    return _SLOT.sub(value_of, template)


def with_article(noun: str) -> str:
    """`noun` with the indefinite article its first letter asks for."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
