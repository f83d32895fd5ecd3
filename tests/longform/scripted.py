"""A local model that recites: a real tokenizer, and a `generate` that follows a script of tokens."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from byrote.models.hf.model import HuggingFaceModel

BEGINNING, END = "<s>", "</s>"
LLAMA_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}<s>[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] | trim }} </s>{% endif %}{% endfor %}"
)
"""In the manner of SentencePiece chat models: a blank before an answer in the history, none before a new one."""


def sentencepiece_like(texts: Sequence[str], *, vocabulary_size: int = 700) -> PreTrainedTokenizerFast:
    """Blanks are part of the word that follows, a blank is put before a text, and decoding drops it again."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", BEGINNING, END, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=vocabulary_size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGINNING} $A", special_tokens=[(BEGINNING, 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token=BEGINNING,
        eos_token=END,
        chat_template=LLAMA_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


class Scripted(HuggingFaceModel):
    """A model whose continuation of a prompt is given by `script`; `prompts` keeps every prompt."""

    def __init__(
        self, tokenizer: Any, script: Callable[[list[int]], list[int]], *, max_positions: int | None = None
    ) -> None:
        config = SimpleNamespace(max_position_embeddings=max_positions, eos_token_id=2, rope_parameters=None)
        config.get_text_config = lambda: config
        weights = SimpleNamespace(weight=torch.zeros(len(tokenizer), 1))
        self.script = script
        self.prompts: list[list[int]] = []
        network = SimpleNamespace(
            config=config,
            device="cpu",
            get_output_embeddings=lambda: weights,
            generate=self._generate,
            named_parameters=lambda: iter(()),
        )
        network.eval = lambda: network
        super().__init__(network, tokenizer, name="scripted")

    def _generate(self, prompt: torch.Tensor, *, attention_mask: torch.Tensor, generation_config: Any) -> torch.Tensor:
        ids: list[int] = prompt[0].tolist()
        self.prompts.append(ids)
        going_on = self.script(ids)[: generation_config.max_new_tokens]
        is_at_end = len(going_on) < generation_config.max_new_tokens
        return torch.tensor([[*ids, *going_on, *([2] if is_at_end else [])]])


def recites(book_ids: list[int], *, tail: int = 6) -> Callable[[list[int]], list[int]]:
    """Goes on after the last tokens of the prompt where the book has just these; otherwise, and without its
    beginning-of-text token, it knows nothing but `<unk>`.
    """

    def script(prompt: list[int]) -> list[int]:
        last = prompt[-tail:]
        if prompt[0] == 1:
            for end in range(len(last), len(book_ids) + 1):
                if book_ids[end - len(last) : end] == last:
                    return book_ids[end:]
        return [0] * 1000

    return script
