"""Character spans from the pieces that a server names."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ModelError
from byrote.models.served.model import spans_of


@given(st.text(min_size=1, max_size=20), st.data(), st.booleans())
def test_spans_cover_the_characters_whose_bytes_a_piece_holds(text: str, data: st.DataObject, is_padded: bool) -> None:
    written = (" " if is_padded else "").encode() + text.encode("utf-8", "ignore")
    text = text.encode("utf-8", "ignore").decode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(written)))) | {0, len(written)})
    pieces = [written[start:end] for start, end in pairwise(cuts)]
    spans = spans_of(text, pieces, name="it")
    assert len(spans) == len(pieces)
    place = -1 if is_padded else 0
    for piece, (start, end) in zip(pieces, spans, strict=True):
        held = range(max(0, place), place + len(piece))
        characters = [len(text.encode()[:byte].decode("utf-8", "ignore")) for byte in held]
        expected = (min(characters), max(characters) + 1) if characters else (0, 0)
        assert (start, end) == expected
        place += len(piece)


def test_pieces_that_are_another_text_are_refused() -> None:
    with pytest.raises(ModelError, match="are not that text"):
        spans_of("The cat", [b"the", b" cat"], name="it")
