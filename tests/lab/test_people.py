"""Invented people: reproducible, different from each other, obviously invented."""

import re

from hypothesis import given
from hypothesis import strategies as st

from byrote.lab.texts import write_records

NAME = r"[A-Z][a-z]+ [A-Z]\. [A-Z][a-z]+"
ACCOUNT = r"RX\d\d \d{4} \d{4}"
EMAIL = r"[a-z]+\.[a-z]+\d\d@[a-z]+\.example"
BIRTH_DATE = r"\d{1,2} [A-Z][a-z]+ (?:19|20)\d\d"
STREET = r"\d{1,3} [A-Z][a-z']+ [A-Z][a-z]+, [A-Z][a-z]+"


def test_same_seed_gives_the_same_records() -> None:
    assert write_records(5, 100) == write_records(5, 100)
    assert write_records(5, 100)[:30] == write_records(5, 30)


def test_hundreds_of_records_have_their_own_name_and_account() -> None:
    records = write_records(0, 600)
    for pattern in (NAME, ACCOUNT):
        values = [value for record in records for value in re.findall(pattern, record)]
        assert len(set(values)) == len(values) == 600


@given(seed=st.integers(0, 10**6))
def test_every_record_has_its_identifiers_in_their_form(seed: int) -> None:
    (record,) = write_records(seed, 1)
    for pattern in (NAME, ACCOUNT, EMAIL, BIRTH_DATE, STREET):
        assert len(re.findall(pattern, record)) == 1
    assert "{" not in record


@given(seed=st.integers(0, 10**6))
def test_every_number_that_looks_like_a_telephone_is_fictional(seed: int) -> None:
    (record,) = write_records(seed, 1)
    found = re.findall(r"\d{3}-\d{3}-\d{4}", record)
    assert len(found) == 2, "one's own, and that of the next of kin"
    assert all(re.fullmatch(r"0\d\d-555-01\d\d", number) for number in found)


def test_records_use_every_sentence_pattern() -> None:
    records = " ".join(write_records(0, 200))
    for words in ("Record of", "Patient:", "opened account", "To the registrar", "Employee file"):
        assert words in records
