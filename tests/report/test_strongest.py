"""The strongest passages on paper: one window a passage, and differences that lose no word of either text."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from byrote.report.reader import compared, strongest_passages
from byrote.report.view import RunView

TEXTS = st.text(alphabet="ab \n", max_size=20)


@given(TEXTS, TEXTS)
def test_a_comparison_holds_both_texts_whole(target: str, continuation: str) -> None:
    pieces = list(compared(target, continuation, is_text=False))
    assert "".join(text for text, kind in pieces if kind != "model") == target
    assert "".join(text for text, kind in pieces if kind != "target") == continuation


def test_passages_are_the_peaks_of_joined_windows_largest_first(view: RunView) -> None:
    found = strongest_passages(view)
    mass, population = view.population.mass(5), view.population
    best = int(mass.argmax())
    assert f"{population.suffix_char_start[best]:,}".replace(",", "\u2009") in found[0].place
    assert len(found) == 10
    spans = [passage.place.split(", characters ") for passage in found]
    starts: dict[str, list[tuple[int, int]]] = {}
    for document, span in spans:
        first, last = (int(place.replace("\u2009", "")) for place in span.split("–"))
        starts.setdefault(document, []).append((first, last))
    for places in starts.values():
        ordered = sorted(places)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ordered))


def test_each_stands_beside_its_most_likely_other_continuation(view: RunView) -> None:
    """The text is what the document has there, and the marked words are those of a stored continuation."""
    assert view.continuations is not None
    stored = set(view.continuations["text"].to_list())
    texts = {document.name: document.text for document in view.documents}
    for passage in strongest_passages(view):
        name = passage.place.split(", characters ")[0]
        target = "".join(text for text, kind in passage.pieces if kind != "model")
        assert passage.prefix + target in (texts[name] or "")
        if passage.note:
            assert "".join(text for text, kind in passage.pieces if kind != "target") in stored
