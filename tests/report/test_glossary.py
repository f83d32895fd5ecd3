"""The glossary of the page is that of the documents, and a word has one meaning."""

from pathlib import Path

from byrote.report.page import FURTHER, GLOSSARY, PARTS, TERMS, definitions, read_glossary
from byrote.run_kinds import SECTIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "glossary.md"


def test_the_page_shows_what_the_document_says() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert (read_glossary(document), read_glossary(document, PARTS[1])) == (GLOSSARY, FURTHER)
    assert len(GLOSSARY) + len(FURTHER) == document.count("<a id="), "every entry was read"
    assert all(entry.text.endswith(".") for entry in (*GLOSSARY, *FURTHER))


def test_every_kind_of_page_defines_words_that_exist() -> None:
    known = {entry.anchor for entry in (*GLOSSARY, *FURTHER)}
    # A comparison of two runs is a page, but no run.
    assert set(TERMS) == {*SECTIONS, "change"}
    assert {term for terms in TERMS.values() for term in terms.split()} <= known
    assert {entry.anchor for entry in FURTHER} <= {entry.anchor for entry in definitions(TERMS)}


def test_an_entry_with_a_formula_and_one_without() -> None:
    entries = '### A\n<a id="a"></a>\nOne\ntwo.\n\n    x = 1\n\n### B\n<a id="b"></a>\nThree.\n\n'
    document = f"## What a reader meets\n\n{entries}## End\n"
    first, second = read_glossary(document)
    assert (first.anchor, first.term, first.text, first.formula) == ("a", "A", "One two.", "x = 1")
    assert (second.text, second.formula, second.short) == ("Three.", None, "Three.")


def test_words_that_are_not_used_are_no_words_of_ours() -> None:
    rows = [line.strip("|").split("|") for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    words = [word.strip() for row in rows[2:] for word in row[0].split(",")]
    others = {word.strip() for row in rows[2:] for word in row[2].split(",")} - {""}
    anchors = [entry.anchor for entry in (*GLOSSARY, *FURTHER)]
    assert len(set(words)) == len(words)
    assert len(set(anchors)) == len(anchors)
    # A shard is not called a part, nor a part a shard: both words are ours, each for its own idea.
    assert others & set(words) <= {"part", "shard"}
