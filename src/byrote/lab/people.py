"""Invented people records, as a privacy audit looks for them, with the character spans of every identifier.

Nobody in them exists: towns and streets are invented, telephone numbers have an area code that starts with 0 and
the exchange 555-01 that is kept for fiction, e-mail addresses end in the reserved domain `.example`, and account
numbers start with the letters RX.
"""

import random
import re
from dataclasses import dataclass
from enum import StrEnum

from byrote.lab.prose import MEN, TOWNS, TRADES, WOMEN

GENERATOR_VERSION = 1
"""Raise it when the records change: every cached model that was trained on them is then made anew."""

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


class Identifier(StrEnum):
    """What a span of a record reveals."""

    NAME = "name"
    BIRTH_DATE = "birth_date"
    TOWN = "town"
    STREET = "street"
    TELEPHONE = "telephone"
    EMAIL = "email"
    ACCOUNT = "account"
    KIN_NAME = "kin_name"
    KIN_TELEPHONE = "kin_telephone"


@dataclass(frozen=True, slots=True)
class IdentifierSpan:
    """`text[start:end]` of the record is this identifier."""

    identifier: Identifier
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PersonRecord:
    """One invented person: the text a model may have seen, and where its identifiers stand in order of appearance."""

    text: str
    spans: tuple[IdentifierSpan, ...]

    def values(self, identifier: Identifier) -> list[str]:
        """Every string the record gives for `identifier`, in order of appearance."""
        return [self.text[span.start : span.end] for span in self.spans if span.identifier is identifier]


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

_SLOT = re.compile(r"\{(\w+)\}")


def write_record(generator: random.Random) -> PersonRecord:
    """One record with a random template, and the spans of its identifiers."""
    values = _draw_values(generator)
    text = ""
    spans: list[IdentifierSpan] = []
    for piece_number, piece in enumerate(_SLOT.split(generator.choice(TEMPLATES))):
        is_slot = piece_number % 2 == 1
        piece_text = values[piece] if is_slot else piece
        if is_slot and piece in set(Identifier):
            spans.append(IdentifierSpan(Identifier(piece), len(text), len(text) + len(piece_text)))
        text += piece_text
    return PersonRecord(text=text, spans=tuple(spans))


def write_records(seed: int, count: int) -> list[PersonRecord]:
    """`count` records with different names and account numbers. The first n of them do not depend on `count`."""
    generator = random.Random(f"lab people {seed}")
    records: list[PersonRecord] = []
    taken: set[str] = set()
    while len(records) < count:
        record = write_record(generator)
        keys = {*record.values(Identifier.NAME), *record.values(Identifier.ACCOUNT)}
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
