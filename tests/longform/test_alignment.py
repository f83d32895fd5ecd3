"""Both texts as one: every word is shown exactly once, in the right role, and nothing can break out of the page."""

from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.longform.matching import MergePass
from byrote.longform.recall import Segment, SegmentKind, nv_recall, segments

BOOK_KINDS = (SegmentKind.SAME, SegmentKind.MISSING)
word_lists = st.lists(st.sampled_from(["one", "two", "three ", "four\n"]), min_size=1, max_size=60).map(
    lambda words: " ".join(words).strip()
)


def pieces(book: str, generation: str, minimum: int) -> list[Segment]:
    result = nv_recall(book, generation, passes=[MergePass(1, 1, minimum)])
    return list(segments(book, generation, result))


@given(book=word_lists, generation=word_lists, minimum=st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_segments_give_back_both_texts(book: str, generation: str, minimum: int) -> None:
    shown = pieces(book, generation, minimum)
    assert "".join(piece.text for piece in shown if piece.kind in BOOK_KINDS) == book
    said = " ".join(piece.text for piece in shown if piece.kind is not SegmentKind.MISSING)
    assert said.split() == generation.split()
    assert sum(piece.words for piece in shown if piece.kind in BOOK_KINDS) == len(book.split())


def test_each_kind_is_told_apart() -> None:
    passage = "a b c d e f"
    shown = pieces(f"{passage} lost g h i j", f"g h i j {passage} new", minimum=4)
    assert [(piece.kind, piece.text.strip()) for piece in shown] == [
        (SegmentKind.ELSEWHERE, "g h i j"),
        (SegmentKind.SAME, passage),
        (SegmentKind.MISSING, "lost g h i j"),
        (SegmentKind.ADDED, "new"),
    ]
