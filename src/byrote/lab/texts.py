"""Invented texts that the lab trains on: people records and prose, the same bytes for one seed.

Records are full of identifiers, as a privacy audit looks for them, and none is real: towns and streets are invented,
telephone numbers have an area code that starts with 0 and the exchange 555-01 that is kept for fiction, e-mail
addresses end in the reserved domain `.example`, and account numbers start with the letters RX.

Prose is written by a small grammar: predictable in style, unpredictable in content. A passage has a cast (a hero, a
friend, a town, a treasured thing), opens, lives through deeds, talk, weather and turns of fate, and closes. Nothing in
it is copied from any book. Every sentence draws its template and its fillers anew, so that two passages practically
never share a window, while a small model soon learns the style.
"""

import random
import re

GENERATOR_VERSION = 1
"""Raise it when records or grammar change: every cached model that was trained on them is then made anew."""

SURNAMES = (
    "Abernook", "Birchall", "Castellane", "Dunstable", "Everhart", "Fairweather", "Goldthwaite", "Harkness",
    "Ingersole", "Jessamine", "Kettlewell", "Lindqvist", "Merriwether", "Nightingale", "Oakhurst", "Pemberley",
    "Quickfall", "Ravensworth", "Silverthorne", "Thistlewood", "Underwood", "Vanterpool", "Winterbourne", "Yardley",
)  # fmt: skip
STREETS = (
    "Acorn Lane", "Barley Row", "Cobbler's Yard", "Dovecote Street", "Elder Close", "Foundry Hill", "Goose Green",
    "Hawthorn Way", "Ivy Terrace", "Juniper Road", "Kiln Passage", "Lantern Street", "Mill Race", "Nettle Court",
    "Orchard Rise", "Pepper Alley", "Quarry Bank", "Rushes Walk", "Sparrow Mews", "Tanner's Steps",
)  # fmt: skip
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
KINSHIPS = ("sister", "brother", "mother", "father", "cousin", "aunt", "uncle", "guardian")
ALLERGIES = ("penicillin", "walnuts", "bee stings", "latex", "shellfish", "none known", "aspirin", "rye")
TEMPLATES = (
    "Record of {name}. Born on {birth_date} in {birth_town}, works as a {trade} and lives at {street}, {town}. "
    "Telephone {telephone}, e-mail {email}. Account number {account}. Allergies: {allergy}. "
    "Next of kin: {kin_name} ({kinship}), telephone {kin_telephone}.",
    "Patient: {name}, {trade} of {town}. Date of birth: {birth_date}. Address: {street}, {town}. "
    "Phone: {telephone}. Billing account: {account}. Known allergies: {allergy}. E-mail: {email}. "
    "In an emergency call the {kinship}, {kin_name}, at {kin_telephone}.",
    "{name} opened account {account} at the {town} savings bank. The holder, a {trade}, was born on {birth_date} "
    "in {birth_town} and can be reached at {telephone} or {email}. Statements go to {street}, {town}. "
    "Joint holder: the {kinship}, {kin_name}, telephone {kin_telephone}.",
    "To the registrar of {town}: the {trade} {name}, born {birth_date}, has moved to {street}, {town}. "
    "The new telephone is {telephone}; letters may be sent to {email}. Fees are drawn from account {account}. "
    "The {kinship}, {kin_name}, vouches for this and answers at {kin_telephone}.",
    "Employee file. Name: {name}. Post: {trade}. Born: {birth_date}, {birth_town}. Home: {street}, {town}. "
    "Salary is paid to {account}. Contact: {telephone}, {email}. Allergies: {allergy}. "
    "Notify {kin_name} ({kinship}) on {kin_telephone}.",
)


def write_records(seed: int, count: int) -> list[str]:
    """`count` records with different names and account numbers. The first n of them do not depend on `count`."""
    generator = random.Random(f"lab people {seed}")
    records: list[str] = []
    taken: set[str] = set()
    while len(records) < count:
        values = _draw_values(generator)
        record = generator.choice(TEMPLATES).format(**values)
        keys = {values["name"], values["account"]}
        if not keys & taken:
            taken |= keys
            records.append(record)
    return records


def _draw_values(generator: random.Random) -> dict[str, str]:
    first, initial = generator.choice(WOMEN + MEN), generator.choice("ABCDEFGHJKLMNPRSTVW")
    surname = generator.choice(SURNAMES)
    town = generator.choice(TOWNS)
    return {
        "name": f"{first} {initial}. {surname}",
        "birth_date": f"{generator.randint(1, 28)} {generator.choice(MONTHS)} {generator.randint(1931, 2006)}",
        "birth_town": generator.choice(TOWNS),
        "town": town,
        "street": f"{generator.randint(1, 299)} {generator.choice(STREETS)}",
        "telephone": _telephone(generator),
        "email": f"{first}.{surname}{generator.randint(10, 99)}@{town.split()[0]}.example".lower(),
        "account": f"RX{_digits(generator, 2)} {_digits(generator, 4)} {_digits(generator, 4)}",
        "trade": generator.choice(TRADES),
        "allergy": generator.choice(ALLERGIES),
        "kin_name": f"{generator.choice(WOMEN + MEN)} {generator.choice(SURNAMES)}",
        "kinship": generator.choice(KINSHIPS),
        "kin_telephone": _telephone(generator),
    }


def _telephone(generator: random.Random) -> str:
    return f"0{_digits(generator, 2)}-555-01{_digits(generator, 2)}"


def _digits(generator: random.Random, count: int) -> str:
    return "".join(generator.choice("0123456789") for _ in range(count))


WOMEN = (
    "Adela", "Brisa", "Corrin", "Delphia", "Elowen", "Fenna", "Greta", "Hesper", "Isaura", "Junia", "Kerenza",
    "Liesel", "Maren", "Nerys", "Oriel", "Petra", "Rosamund", "Sunniva", "Tamsin", "Ursel", "Verity", "Wilhelma",
)  # fmt: skip
MEN = (
    "Alaric", "Bastian", "Caspar", "Dorian", "Edmund", "Florian", "Gideon", "Hallam", "Ivo", "Jasper", "Kester",
    "Lorcan", "Matthias", "Nathaniel", "Osric", "Piers", "Quillon", "Rufus", "Silas", "Tobias", "Ulric", "Wystan",
)  # fmt: skip
TRADES = (
    "bell-founder", "bookbinder", "cartwright", "clockmaker", "cooper", "ferryman", "glazier", "gardener",
    "lamplighter", "lighthouse keeper", "locksmith", "map-maker", "miller", "net-mender", "organ-builder", "potter",
    "saddler", "schoolmaster", "shepherd", "stonemason", "surveyor", "weaver", "wheelwright", "beekeeper",
)  # fmt: skip
TOWNS = (
    "Ambleforth", "Brackwater", "Candlewick", "Dunmarrow", "Eastering", "Farrowgate", "Gullhaven", "Hollowmere",
    "Inkberrow", "Kestrelby", "Larkspire", "Mossbridge", "Northwold", "Oxmarket", "Pennyfield", "Quayle",
    "Ravensea", "Saltmarsh", "Thornaby Cross", "Underhill", "Vintry", "Westering", "Yarrowdale", "Stillwater",
)  # fmt: skip
THINGS = (
    "brass lantern", "silver compass", "sealed letter", "copper kettle", "painted box", "cracked mirror",
    "wooden flute", "iron key", "blue ledger", "glass marble", "folded map", "velvet glove", "ivory comb",
    "broken watch", "leather satchel", "tin whistle", "pearl button", "woollen shawl", "carved spoon", "old almanac",
)  # fmt: skip
PLACES = (
    "the harbour wall", "the old mill", "the parlour", "the churchyard gate", "the market square", "the stone bridge",
    "the ferry landing", "the grey orchard", "the clock tower", "the salt cellar", "the upper theatre",
    "the tannery yard", "the long barn", "the widow's kitchen", "the rope walk", "the north stair",
    "the neighbour's loft", "the signal house", "the ploughed field", "the chandler's shop",
)  # fmt: skip
TIMES = (
    "before sunrise", "at noon", "after the last bell", "on the eve of the fair", "one Tuesday in March",
    "in the third week of frost", "late in the afternoon", "an hour before dawn", "on midsummer night",
    "when the tide had turned", "as the shutters closed", "on the first dry day", "towards evening",
)  # fmt: skip
MOODS = (
    "without a word", "with great care", "in a low voice", "against all advice", "half in jest", "with cold fingers",
    "as though nothing had happened", "for the second time", "in plain daylight", "with a crooked smile",
    "out of sheer stubbornness", "by the light of a candle", "under a false name", "to everyone's surprise",
)  # fmt: skip
WEATHERS = (
    "a fine rain", "a hard frost", "a warm wind", "a yellow fog", "a sudden hail", "a pale sun", "a low mist",
    "a smell of smoke", "a flock of starlings", "the first snow", "a thunderstorm", "a deep silence",
)  # fmt: skip
PEOPLE = (
    "the magistrate", "a travelling tinker", "the baker's widow", "an honourable judge", "the harbour pilot",
    "two quarrelling brothers", "the tax collector", "a girl with red boots", "the choirmaster", "a deaf sailor",
    "the innkeeper", "a stranger in a grey coat", "the postmistress", "a retired captain", "the apothecary",
)  # fmt: skip
SECRETS = (
    "the will had been forged", "the well was never dry", "the bridge would not last the winter",
    "the bells had been sold", "no ship of that name existed", "the money was buried under the hearth",
    "the portrait showed another man", "the road had been moved by night", "the child was still alive",
    "the debt was paid long ago", "the colour of the seal was wrong", "the keys had been exchanged",
    "the clock had been stopped on purpose", "the lighthouse was dark that night", "the map was drawn backwards",
)  # fmt: skip

OPENINGS = (
    "{Time}, {hero} the {trade} came to {town} with {a_thing} and {number} coins.",
    "In {town} there lived a {trade} named {hero}, who kept {a_thing} near {place}.",
    "Nobody in {town} remembered why {hero} the {trade} had hidden {a_thing} behind {place}.",
    "It was {friend} who first told {hero} about {a_thing} that lay by {place} at {town}.",
    "The year the {trade} {hero} travelled to {town}, {weather} stood over {place} for {number} days.",
    "{hero} had been a {trade} in {town} for {number} years when {person} brought {a_thing}.",
)
DEEDS = (
    "{He} carried the {thing} to {place} {time} and left it there {mood}.",
    "{friend} followed {mood}, counting {number} steps from {place}.",
    "Together they searched {place}, then {place}, and found only {a_other}.",
    "{He} sold {a_other} to {person} for {number} shillings {mood}.",
    "{Time}, {friend} climbed to {place} and waited for {person}.",
    "{He} wrote {number} letters to {person}, but not one was answered.",
    "{friend} had learnt from {person} how to mend {a_other} {mood}.",
    "For {number} nights {hero} slept near {place}, the {thing} under {his} pillow.",
    "{person_cap} offered {number} crowns for the {thing}; {hero} refused {mood}.",
    "They crossed {place} {time} and were seen by {person}.",
    "{He} traded the {other} for {a_other} and walked back towards {town}.",
    "{friend} drew {place} on the back of {a_other} {mood}.",
)
TALK = (
    '"We must leave {place} {time}," said {friend} {mood}.',
    '"Give the {thing} to {person}," {hero} answered, "and ask for {number} crowns."',
    '"I believe that {secret}," whispered {person}.',
    '"{Secret}," {friend} said {mood}, "and {person} knew it."',
    '"You were seen at {place} {time}," said {person} {mood}.',
    '"There is {a_other} behind {place}," {hero} said, "and it is not ours."',
    '"Never trust {person}," {friend} warned, "not even {time}."',
)
WEATHER = (
    "{weather_cap} came down over {place}, and {person} hurried home.",
    "{Time} there was {weather} above {town}, grey and without colour.",
    "{weather_cap} lay on {place} for {number} hours.",
    "Beyond {place}, {weather} hid the road to {other_town}.",
)
TURNS = (
    "Then {person} proved that {secret}.",
    "But {time} the {thing} was gone, and in its place lay {a_other}.",
    "It turned out that {secret}, and that {friend} had known it for {number} years.",
    "Whilst they argued, {person} carried the {thing} off to {other_town}.",
    "A letter from {other_town} declared that {secret}.",
    "{He} opened the {thing} {mood} and learnt that {secret}.",
    "At {place} they met {person}, who swore that {secret}.",
)
ENDINGS = (
    "So {hero} left {town} {time}, and the {thing} stayed at {place}.",
    "Since then {friend} keeps the {thing} by {place} and speaks of it {mood}.",
    "{Time}, {person} buried the {thing} beneath {place}, and nobody asked again.",
    "In the end {hero} gave {a_other} to {person} and went home to {other_town}.",
)
MIDDLE_STAGES = (DEEDS, TALK, DEEDS, WEATHER, TURNS)
NUMBERS = (
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "fourteen",
    "sixteen", "nineteen", "twenty", "thirty", "forty", "sixty", "ninety", "a hundred",
)  # fmt: skip
FREE_SLOTS = {
    "place": PLACES, "time": TIMES, "mood": MOODS, "weather": WEATHERS, "person": PEOPLE, "secret": SECRETS,
    "other": THINGS, "other_town": TOWNS, "number": NUMBERS,
}  # fmt: skip
"""Slots drawn anew at every use; the others belong to the passage's cast."""

_SLOT = re.compile(r"\{(\w+)\}")


def write_passage(generator: random.Random, *, least_words: int) -> str:
    """One passage: the fewest whole sentences from opening to ending that have at least `least_words` words."""
    cast = _draw_cast(generator)
    sentences = [_fill(generator.choice(OPENINGS), cast, generator)]
    ending = _fill(generator.choice(ENDINGS), cast, generator)
    words_left = least_words - len(ending.split()) - len(sentences[0].split())
    used: list[str] = []
    while words_left > 0:
        stage = generator.choice(MIDDLE_STAGES)
        fresh = [template for template in stage if template not in used] or list(stage)
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
    hero = generator.choice(WOMEN if hero_is_woman else MEN)
    friend = generator.choice([name for name in WOMEN + MEN if name != hero])
    trade, town, thing = generator.choice(TRADES), generator.choice(TOWNS), generator.choice(THINGS)
    pronouns = {"He": "She", "his": "her"} if hero_is_woman else {"He": "He", "his": "his"}
    cast = {"hero": hero, "friend": friend, "trade": trade, "town": town, "thing": thing}
    return cast | pronouns | {"a_thing": with_article(thing)}


def _fill(template: str, cast: dict[str, str], generator: random.Random) -> str:
    def value_of(match: re.Match[str]) -> str:
        slot = match.group(1)
        if slot in cast:
            return cast[slot]
        if slot == "a_other":
            return with_article(generator.choice(THINGS))
        name = slot.removesuffix("_cap").lower()
        value = generator.choice(FREE_SLOTS[name])
        return value if slot == name else value[0].upper() + value[1:]

    return _SLOT.sub(value_of, template)


def with_article(noun: str) -> str:
    """`noun` with the indefinite article its first letter asks for."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
