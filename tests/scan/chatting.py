"""The tiny model of the lab tuned on conversations: it knows some passages by heart in answers of a chat alone."""

import random
from dataclasses import replace
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from byrote.lab.pocket import TINY, PassageKind, PlannedPassage, PocketModel, plan_stream
from byrote.lab.train import encode_all, train, train_tokenizer
from byrote.models.prompts import BUILT_IN, PREFIX

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PASSAGES, COPIES = 4, 96


def chatting_model(folder: Path) -> PocketModel:
    """Trained now, in a few seconds."""
    stream = plan_stream(replace(TINY, prose_controls=TINY.prose_controls + PASSAGES))
    chatted = [
        PlannedPassage(f"conversation-{COPIES:04d}-{number:02d}", PassageKind.PROSE, control.text, COPIES)
        for number, control in enumerate(stream.controls[TINY.prose_controls :])
    ]
    tokenizer = train_tokenizer(stream.background, vocabulary_size=TINY.vocabulary_size)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = CHAT_TEMPLATE
    documents = stream._replace(tokenizer=tokenizer).documents(TINY.seed)
    documents += [ids for passage in chatted for ids in conversations(tokenizer, passage)]
    random.Random("conversations in the stream").shuffle(documents)
    train(TINY.training, documents, tokenizer, folder=folder)
    return PocketModel(folder, (*stream.targets, *chatted), stream.controls[: TINY.prose_controls])


def conversations(tokenizer: PreTrainedTokenizerFast, passage: PlannedPassage) -> list[list[int]]:
    """The passage in so many conversations, by turns continued from a question and recited, from varied places on."""
    generator, words = random.Random(f"conversation {passage.name}"), passage.text.split(" ")
    written = []
    for number in range(passage.copies):
        start = generator.randrange(len(words) // 2)
        cut = start + generator.randint(6, 14)
        turns = BUILT_IN["ask" if number % 2 else "chat"]
        asked = turns[0]["content"].replace(PREFIX, " ".join(words[start:cut]))
        answer = words[cut:] if number % 2 else words[start:]
        messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": " ".join(answer)}]
        written.append(str(tokenizer.apply_chat_template(messages, tokenize=False)))
    return encode_all(tokenizer, written)
