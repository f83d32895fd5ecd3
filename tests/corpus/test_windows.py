"""Windows against the obvious version: tokenise the whole rest of the document and keep the first tokens."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byrote.corpus.read import Document
from byrote.corpus.select import plan_windows
from byrote.corpus.windows import (
    SLICES_PER_BATCH,
    WindowOptions,
    count_by_split,
)
from byrote.errors import TextError
from byrote.types import Split, Window
from tests.corpus.cutting import cut_windows
from tests.corpus.toy_tokenizers import ByteTokenizer, WordTokenizer

OPTIONS = WindowOptions(prefix_tokens=3, suffix_tokens=2, stride_chars=4)


def document(text: str, name: str = "d", split: Split = Split.TARGET) -> Document:
    return Document.from_text(name, text, split=split)


def obvious_windows(
    documents: list[Document], tokenizer: WordTokenizer, options: WindowOptions, bos_id: int | None
) -> tuple[list[Window], Counter[str]]:
    windows, short = [], Counter[str]()
    for doc in documents:
        stride = options.stride_chars
        for start in [0] if stride is None else range(0, max(len(doc.text), 1), stride):
            ids, spans = tokenizer.encode(doc.text[start:])
            if bos_id is not None:
                ids, spans = [bos_id, *ids], [(0, 0), *spans]
            if len(ids) < options.prefix_tokens + options.suffix_tokens:
                short[doc.name] += 1
                continue
            a, end = options.prefix_tokens, options.prefix_tokens + options.suffix_tokens
            windows.append(
                Window(
                    window_id=f"{doc.name}@{start}",
                    document=doc.name,
                    split=doc.split,
                    char_start=start,
                    suffix_char_start=start + spans[a][0],
                    char_end=start + spans[end - 1][1],
                    prefix_ids=tuple(ids[:a]),
                    suffix_ids=tuple(ids[a:end]),
                )
            )
    return windows, short


words = st.text(alphabet="abé漢 \n", max_size=120)
long_words = st.lists(st.integers(1, 60), max_size=12).map(lambda sizes: " ".join("x" * size for size in sizes))


@given(
    texts=st.lists(words | long_words, max_size=3),
    prefix_tokens=st.integers(1, 4),
    suffix_tokens=st.integers(1, 4),
    stride_chars=st.none() | st.integers(1, 30),
    bos_id=st.none() | st.just(0),
    tokenizer=st.sampled_from([WordTokenizer(), ByteTokenizer()]),
)
@example(["a" * 3000 + " b"], 1, 1, None, None, WordTokenizer())
@example([" " * 3000 + "a b c"], 1, 2, None, 0, WordTokenizer())
@example([""], 1, 1, 5, None, WordTokenizer())
@settings(deadline=None)
def test_windows_equal_tokenising_the_whole_rest_of_the_document(
    texts: list[str],
    prefix_tokens: int,
    suffix_tokens: int,
    stride_chars: int | None,
    bos_id: int | None,
    tokenizer: WordTokenizer,
) -> None:
    options = WindowOptions(prefix_tokens, suffix_tokens, stride_chars)
    documents = [document(text, name=f"d{index}") for index, text in enumerate(texts)]
    chosen = cut_windows(documents, tokenizer, options, bos_id=bos_id)
    windows, short = obvious_windows(documents, tokenizer, options, bos_id)
    assert chosen.windows == windows
    assert chosen.tally.short == short
    assert chosen.tally.windows == Counter(window.document for window in windows)
    assert sum(count_by_split(documents, options.stride_chars).values()) == len(windows) + sum(short.values())


@given(
    text=words | long_words,
    room=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    tokens=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    stride_chars=st.none() | st.integers(1, 30),
    bos_id=st.none() | st.just(0),
    tokenizer=st.sampled_from([WordTokenizer(), ByteTokenizer()]),
)
def test_with_room_windows_are_the_middle_of_longer_ones(
    text: str,
    room: tuple[int, int],
    tokens: tuple[int, int],
    stride_chars: int | None,
    bos_id: int | None,
    tokenizer: WordTokenizer,
) -> None:
    prefix, suffix = (min(each) for each in zip(room, tokens, strict=True))
    options = WindowOptions(prefix, suffix, stride_chars, prefix_room=room[0], suffix_room=room[1])
    chosen = cut_windows([document(text)], tokenizer, options, bos_id=bos_id)
    longer, short = obvious_windows([document(text)], tokenizer, WindowOptions(*room, stride_chars), bos_id)
    assert chosen.tally.short == short
    assert [window.window_id for window in chosen.windows] == [window.window_id for window in longer]
    for window, whole in zip(chosen.windows, longer, strict=True):
        spans = tokenizer.encode(text[whole.char_start :]).spans
        kept = prefix if bos_id is None else prefix - 1
        before = room[0] - (room[0] - len(whole.prefix_ids)) - (bos_id is not None)
        assert window.prefix_ids == whole.prefix_ids[: bos_id is not None] + whole.prefix_ids[room[0] - kept :]
        assert window.suffix_ids == whole.suffix_ids[:suffix]
        assert window.suffix_char_start == whole.suffix_char_start
        assert window.char_end == whole.char_start + spans[before + suffix - 1][1]
        assert window.further["prefix_char_start"] == whole.char_start + spans[before - kept][0]


def test_real_byte_level_bpe_gives_the_tokens_of_the_whole_rest() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from byrote.types import Encoding

    text = "It was “naïve” — the 漢字 sat on the mat, and 12 345 other  things\n\nhappened… " * 40
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator([text], trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))

    class HuggingFaceTokenizer(WordTokenizer):
        def encode(self, text: str) -> Encoding:
            encoding = bpe.encode(text)
            return Encoding(encoding.ids, encoding.offsets)

    options = WindowOptions(prefix_tokens=20, suffix_tokens=20, stride_chars=7)
    chosen = cut_windows([document(text)], HuggingFaceTokenizer(), options, bos_id=None)
    windows, short = obvious_windows([document(text)], HuggingFaceTokenizer(), options, None)
    assert chosen.windows == windows
    assert chosen.tally.short == short
    assert len(windows) > 300


def test_bos_counts_inside_the_prefix_and_has_no_characters() -> None:
    chosen = cut_windows([document("a b c d e f")], WordTokenizer(), OPTIONS, bos_id=99)
    without = cut_windows([document("a b c d e f")], WordTokenizer(), OPTIONS, bos_id=None)
    window = chosen.windows[0]
    assert window.prefix_ids == (99, *without.windows[0].prefix_ids[:2])
    assert len(window.ids) == OPTIONS.tokens
    assert (window.char_start, window.suffix_char_start, window.char_end) == (0, 3, 7)


def test_one_prefix_token_may_be_bos_alone() -> None:
    options = WindowOptions(prefix_tokens=1, suffix_tokens=2, stride_chars=None)
    [window] = cut_windows([document("a b c")], WordTokenizer(), options, bos_id=99).windows
    assert window.prefix_ids == (99,)
    assert (window.char_start, window.suffix_char_start, window.char_end) == (0, 0, 3)


def test_character_split_over_tokens_is_covered_by_the_span() -> None:
    options = WindowOptions(prefix_tokens=2, suffix_tokens=2, stride_chars=None)
    [window] = cut_windows([document("漢字x")], ByteTokenizer(), options, bos_id=None).windows
    # 漢 is three bytes: the prefix holds two of them, the suffix the third and the first of 字.
    assert (window.suffix_char_start, window.char_end) == (0, 2)


def test_window_ids_are_readable_and_unique_across_documents() -> None:
    documents = [document("a b c d e f g h", name) for name in ("x.txt", "x.txt@4", "ü/y.txt")]
    ids = [window.window_id for window in cut_windows(documents, WordTokenizer(), OPTIONS, bos_id=None).windows]
    assert ids == ["x.txt@0", "x.txt@4", "x.txt@4@0", "x.txt@4@4", "ü/y.txt@0", "ü/y.txt@4"]


def test_windows_do_not_depend_on_other_documents() -> None:
    first, second = document("a b c d e f g h i j", "one"), document("k l m n o p q r", "two")
    alone = cut_windows([second], WordTokenizer(), OPTIONS, bos_id=None).windows
    together = cut_windows([first, second], WordTokenizer(), OPTIONS, bos_id=None).windows
    assert [window for window in together if window.document == "two"] == alone


def test_longest_short_window_is_remembered() -> None:
    chosen = cut_windows([document("a b", "x"), document("a b c d", "y")], WordTokenizer(), OPTIONS, bos_id=None)
    assert chosen.windows == []
    assert chosen.tally.short == {"x": 1, "y": 2}
    assert chosen.tally.longest_short == ("y", 0, 4)


def test_duplicate_document_names_are_refused() -> None:
    with pytest.raises(TextError, match="2 documents are named 'd'"):
        cut_windows([document("a"), document("b")], WordTokenizer(), OPTIONS, bos_id=None)


def test_slices_are_tokenised_in_large_batches() -> None:
    tokenizer = WordTokenizer()
    text = "word " * (SLICES_PER_BATCH // 2)
    cut_windows([document(text)], tokenizer, WindowOptions(3, 2, 1), bos_id=None)
    assert sum(count_by_split([document(text)], 1).values()) == len(text)
    assert len(tokenizer.batches) <= len(text) // SLICES_PER_BATCH + 1


def test_stream_tokenises_only_as_far_as_it_is_read() -> None:
    tokenizer = WordTokenizer()
    next(plan_windows([document("word " * 100_000)], OPTIONS).cut(tokenizer, bos_id=None))
    assert sum(tokenizer.batches) == SLICES_PER_BATCH
