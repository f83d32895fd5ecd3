"""Fast tokenizers of every common kind, trained on a few sentences that spell special tokens."""

from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SENTENCES = [
    "the cat sat on the mat, and <unk> more",
    "a text may say </s> or <s> or <|endoftext|> or [SEP] in words",
    "<|endoftext|>that says where it ends",
    "café naïve 漢字 — “quoted” text 12 345",
] * 30


def byte_level_bpe(*, trims_offsets: bool = False) -> PreTrainedTokenizerFast:
    """As GPT-2. Trained on text that spells its end-of-text token, so that merges lead up to it."""
    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(" ", behavior="merged_with_next")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.train_from_iterator(
        SENTENCES,
        trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims_offsets)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def metaspace_bpe() -> PreTrainedTokenizerFast:
    """As Llama 2: blanks become ▁, one is put in front, special tokens stand in the vocabulary."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(
        SENTENCES, trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def unigram() -> PreTrainedTokenizerFast:
    """As T5 or XLNet: special tokens are pieces of the vocabulary, and the likeliest ones."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        SENTENCES,
        trainers.UnigramTrainer(
            vocab_size=120, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def word_piece() -> PreTrainedTokenizerFast:
    """As BERT: lower case, blanks are dropped, `[SEP]` ends a text."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        SENTENCES,
        trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[SEP]"], show_progress=False),
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[SEP]", unk_token="[UNK]")


def word_level() -> PreTrainedTokenizerFast:
    """One token a word, the words `<unk>` and `</s>` among them."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(
        SENTENCES, trainers.WordLevelTrainer(special_tokens=["<unk>", "</s>"], show_progress=False)
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


KINDS: dict[str, Callable[[], Any]] = {
    "byte_level_bpe": byte_level_bpe,
    "metaspace_bpe": metaspace_bpe,
    "unigram": unigram,
    "word_piece": word_piece,
    "word_level": word_level,
}
WRITES_EVERYTHING_BACK = ("byte_level_bpe", "metaspace_bpe", "unigram")
"""Kinds whose tokens decode to the text they were made of, blanks included."""
