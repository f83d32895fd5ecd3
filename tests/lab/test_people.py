"""Invented people: reproducible, different from each other, obviously invented, with exact spans."""

import random
import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from byrote.lab.people import Identifier, write_record, write_records

PATTERNS = {
    Identifier.NAME: r"[A-Z][a-z]+ [A-Z]\. [A-Z][a-z]+",
    Identifier.BIRTH_DATE: r"\d{1,2} [A-Z][a-z]+ (19|20)\d\d",
    Identifier.TOWN: r"[A-Z][a-z]+( [A-Z][a-z]+)?",
    Identifier.STREET: r"\d{1,3} [A-Z][a-z']+ [A-Z][a-z]+",
    Identifier.TELEPHONE: r"0\d\d-555-01\d\d",
    Identifier.EMAIL: r"[a-z]+\.[a-z]+\d\d@[a-z]+\.example",
    Identifier.ACCOUNT: r"RX\d\d \d{4} \d{4}",
    Identifier.KIN_NAME: r"[A-Z][a-z]+ [A-Z][a-z]+",
    Identifier.KIN_TELEPHONE: r"0\d\d-555-01\d\d",
}


def test_same_seed_gives_the_same_records() -> None:
    assert write_records(5, 100) == write_records(5, 100)
    assert write_records(5, 100)[:30] == write_records(5, 30)


def test_hundreds_of_records_have_their_own_name_and_account() -> None:
    records = write_records(0, 600)
    for identifier in (Identifier.NAME, Identifier.ACCOUNT):
        values = [value for record in records for value in record.values(identifier)]
        assert len(set(values)) == len(values) == 600


@given(seed=st.integers(0, 10**6))
def test_every_identifier_is_where_its_span_says(seed: int) -> None:
    record = write_record(random.Random(seed))
    assert {span.identifier for span in record.spans} == set(Identifier)
    assert list(record.spans) == sorted(record.spans, key=lambda span: span.start)
    for before, after in pairwise(record.spans):
        assert before.end <= after.start
    for span in record.spans:
        assert re.fullmatch(PATTERNS[span.identifier], record.text[span.start : span.end])


@given(seed=st.integers(0, 10**6))
def test_every_number_that_looks_like_a_telephone_is_fictional_and_marked(seed: int) -> None:
    record = write_record(random.Random(seed))
    found = re.findall(r"\d{3}-\d{3}-\d{4}", record.text)
    assert sorted(found) == sorted(record.values(Identifier.TELEPHONE) + record.values(Identifier.KIN_TELEPHONE))
    assert all(re.fullmatch(r"0\d\d-555-01\d\d", number) for number in found)


def test_records_use_several_sentence_patterns() -> None:
    shapes = {tuple(span.identifier for span in record.spans) for record in write_records(0, 200)}
    assert len(shapes) >= 4
