"""A small byte-level BPE tokenizer, trained on the lab's own text: the same text gives the same tokenizer.

Byte level, so every text survives the round trip. Digits stand alone, so that numbers of equal length have equally
many tokens. One special token `<|endoftext|>` (id 0) is beginning, end and padding; it is not added by default.
"""

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rote.errors import ConfigError

END_OF_TEXT = "<|endoftext|>"
SMALLEST_VOCABULARY = 257
"""256 bytes and the special token."""


def train_tokenizer(texts: Iterable[str], *, vocabulary_size: int) -> PreTrainedTokenizerFast:
    """A fast tokenizer with character offsets and at most `vocabulary_size` tokens (fewer when the text is poor)."""
    if vocabulary_size < SMALLEST_VOCABULARY:
        raise ConfigError(
            f"vocabulary size {vocabulary_size} has no room for the 256 bytes and {END_OF_TEXT}; "
            f"give at least {SMALLEST_VOCABULARY}."
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )


def encode_all(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of every text, no special token added."""
    if not texts:
        return []
    encoded: list[list[int]] = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return encoded
