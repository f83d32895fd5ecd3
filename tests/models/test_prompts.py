"""What the model is given is what its own template writes: three shapes of templates, judged by transformers' own
`apply_chat_template` on whole conversations."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from byrote.errors import ConfigError, ModelError
from byrote.models.prompts import INSTRUCTION, QUESTION, ScanPrompt, make_prompt
from byrote.models.tokenizer import Tokenizing
from byrote.types import Split, Window

TEXT = (
    "The harbour was grey that morning, and Ada Quickfall counted the boats twice. “Nine,” she said; <s> the tenth had "
    "not come home. She walked along the quay to the lamp, where old Merriwether mended his nets and said nothing."
)
QUEUE = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""As Qwen 3: no beginning-of-text token, and a switch for thinking."""
BRACKETS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
    "{% elif m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]"
    "{% else %} {{ m.content | trim }} {{ eos_token }}{% endif %}{% endfor %}"
)
"""As Llama 2 and Mistral: a blank before an answer, contents without blanks around them."""
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
"""As Llama 3."""
ALWAYS_THINKS = QUEUE.partition("{% if enable")[0] + "<think>\n{% endif %}"
"""As distilled R1: the template opens the thought."""
THINKS_BY_ITSELF = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As R1: earlier thoughts are left out, and the model begins one by itself."""


def byte_level(template: str, *, special: list[str], bos: str | None) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT, QUESTION, INSTRUCTION] * 5, trainer)
    if bos is not None:
        place = special.index(bos)
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, place)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, chat_template=template)


def queue(template: str = QUEUE) -> PreTrainedTokenizerFast:
    return byte_level(template, special=["<|im_start|>", "<|im_end|>", "<think>", "</think>"], bos=None)


def headers() -> PreTrainedTokenizerFast:
    special = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    return byte_level(HEADERS, special=special, bos="<|begin_of_text|>")


def brackets() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([TEXT, QUESTION, INSTRUCTION, "[INST] a [/INST]"] * 5, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        chat_template=BRACKETS,
    )


SHAPES = {"queue": queue, "brackets": brackets, "headers": headers}


def window_of(tokenizing: Tokenizing, text: str = TEXT, *, prefix: int = 19, suffix: int = 12) -> Window:
    """The first tokens of a text, as a scan cuts them."""
    bos = tokenizing.bos_id("auto")
    (encoded,) = tokenizing.encode_batch([text])
    return Window(
        "text@0",
        "text",
        Split.TARGET,
        0,
        encoded.spans[prefix][0],
        encoded.spans[prefix + suffix - 1][1],
        (() if bos is None else (bos,)) + tuple(encoded.ids[:prefix]),
        tuple(encoded.ids[prefix : prefix + suffix]),
    )


def prompt_of(name: str, tokenizing: Tokenizing) -> ScanPrompt:
    prompt = make_prompt(name, tokenizing, bos_id=tokenizing.bos_id("auto"))
    assert prompt is not None
    return prompt


def conversation_ids(tokenizing: Tokenizing, messages: list[dict[str, str]], **further: Any) -> list[int]:
    """As transformers writes and tokenises it, thinking off."""
    written = tokenizing.tokenizer.apply_chat_template(messages, tokenize=False, enable_thinking=False, **further)
    return list(tokenizing.tokenizer(written, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_prefix_begins_the_answer_where_the_template_writes_it(shape: str) -> None:
    tokenizing = Tokenizing(SHAPES[shape](), shape)
    plain = window_of(tokenizing, TEXT.replace("<s>", "and"))
    given = prompt_of("chat", tokenizing).around(plain, "unused")
    said = TEXT.replace("<s>", "and")[: plain.char_end]
    messages = [{"role": "user", "content": INSTRUCTION}, {"role": "assistant", "content": said}]
    expected = conversation_ids(tokenizing, messages)
    if shape == "queue":
        # Where an answer is over, this template has left its empty thought out.
        opened = tokenizing.rendered(messages[:1])
        assert opened.endswith("</think>\n\n")
        expected = tokenizing.tokenizer(opened + said)["input_ids"]
    assert list(given.ids) == expected[: len(given.ids)]
    assert given.suffix_ids == plain.suffix_ids
    assert given.prefix_ids == plain.prefix_ids
    bos = tokenizing.bos_id("auto")
    assert list(given.ids).count(-1 if bos is None else bos) == (bos is not None), "one beginning-of-text token"


@pytest.mark.parametrize("shape", SHAPES)
def test_the_target_begins_the_answer_to_a_question_with_the_prefix(shape: str) -> None:
    tokenizing = Tokenizing(SHAPES[shape](), shape)
    text = TEXT.replace("<s>", "and")
    plain = window_of(tokenizing, text)
    target = text[plain.suffix_char_start : plain.char_end]
    assert target.startswith(" "), "the target goes on in the middle of a sentence"
    given = prompt_of("ask", tokenizing).around(plain, target)
    question = {"role": "user", "content": QUESTION + text[: plain.suffix_char_start]}
    opened = conversation_ids(tokenizing, [question], add_generation_prompt=True)
    if shape != "brackets":
        # Behind a line break the prefix keeps the blank that this kind of tokenizer puts before a text.
        assert list(given.context_ids) == opened
    assert tokenizing.decode(given.context_ids).split() == tokenizing.decode(opened).split()
    answered = conversation_ids(tokenizing, [question, {"role": "assistant", "content": target.strip()}])
    end = conversation_ids(tokenizing, [question, {"role": "assistant", "content": "x"}])
    shared = next(place for place, (one, other) in enumerate(zip(answered, end, strict=False)) if one != other)
    assert list(given.suffix_ids) == answered[shared : shared + len(given.suffix_ids)]
    assert tokenizing.decode(given.suffix_ids).strip() == target.strip()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["chat", "ask"])
def test_special_tokens_that_a_text_spells_stay_text(shape: str, name: str) -> None:
    tokenizing = Tokenizing(SHAPES[shape](), shape)
    spelled = "".join(tokenizing.tokenizer.added_tokens_decoder[token].content for token in range(3))
    text = f"He wrote {spelled} on the wall, and {spelled} again, and nobody knew why {spelled} was there."
    window = window_of(tokenizing, text, prefix=30, suffix=20)
    prompt = prompt_of(name, tokenizing)
    given = prompt.around(window, text[window.suffix_char_start : window.char_end])
    special = {token for token, entry in tokenizing.tokenizer.added_tokens_decoder.items() if entry.special}
    around = [*prompt.head_ids, *prompt.tail_ids]
    # The unknown token and bytes, which a text may need.
    special -= {0, *range(3, 259)} if shape == "brackets" else set()
    found = [token for token in given.ids if token in special]
    assert sorted(found) == sorted(token for token in around if token in special)


@pytest.mark.parametrize(
    ("template", "ends", "thinking"),
    [
        (QUEUE, "assistant\n<think>\n\n</think>\n\n", "switched off by the template"),
        (ALWAYS_THINKS, "assistant\n<think>\n\n</think>\n\n", "an empty thought is given"),
        (THINKS_BY_ITSELF, "assistant\n<think>\n\n</think>\n\n", "an empty thought is given"),
    ],
)
def test_no_thought_is_left_to_think(template: str, ends: str, thinking: str) -> None:
    tokenizing = Tokenizing(queue(template), "thinker")
    for name in ("chat", "ask"):
        prompt = prompt_of(name, tokenizing)
        before = prompt.head_ids if name == "chat" else prompt.tail_ids
        assert tokenizing.decode(before).endswith(ends)
        assert prompt.facts["thinking"] == thinking
    assert prompt_of("chat", Tokenizing(headers(), "h")).facts["thinking"] == "none"


def test_a_prompt_is_known_by_what_is_written() -> None:
    one, other = Tokenizing(queue(), "a"), Tokenizing(queue(QUEUE.replace("enable_thinking is false", "1 == 1")), "b")
    changed = Tokenizing(queue(QUEUE.replace("{{ m.role }}", "{{ m.role }} ")), "c")
    facts = [dict(prompt_of("ask", tokenizing).facts) for tokenizing in (one, other, changed)]
    assert QUESTION + "{prefix}<|im_end|>" in facts[0]["written"]
    assert facts[0]["hash"] != facts[2]["hash"]
    assert len({fact["template_hash"] for fact in facts}) == 3


def test_a_file_may_be_a_text_or_messages(tmp_path: Path) -> None:
    tokenizing = Tokenizing(headers(), "headers")
    window = window_of(tokenizing, TEXT.replace("<s>", "and"))
    (tmp_path / "own.txt").write_text("Book:\n{prefix}\n", encoding="utf-8")
    own = prompt_of(str(tmp_path / "own.txt"), tokenizing)
    assert own.name == "own"
    given = own.around(window, "unused")
    assert tokenizing.decode(given.context_ids) == "<|begin_of_text|>Book:\n" + tokenizing.decode(window.prefix_ids[1:])
    assert given.suffix_ids == window.suffix_ids
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go on: {prefix}"}]
    (tmp_path / "sys.json").write_text(json.dumps(messages), encoding="utf-8")
    asked = prompt_of(str(tmp_path / "sys.json"), tokenizing).around(window, " a target")
    text = tokenizing.decode(window.prefix_ids[1:])
    expected = tokenizing.tokenizer.apply_chat_template(
        [messages[0], {"role": "user", "content": f"Go on: {text}"}], tokenize=False, add_generation_prompt=True
    )
    assert tokenizing.decode(asked.context_ids) == expected
    assert tokenizing.decode(asked.suffix_ids) == "a target"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("gone.txt", None, "neither plain, chat or ask nor a file"),
        ("none.txt", "no place for it", r"has \{prefix\} 0 times"),
        ("twice.txt", "{prefix} {prefix}", r"has \{prefix\} 2 times"),
        ("bad.json", "[{prefix}", "is not JSON"),
        ("bare.json", '["{prefix}"]', "no list of messages"),
        ("lone.json", '[{"role": "assistant", "content": "{prefix}"}]', "no list of messages"),
        ("role.json", '[{"role": "{prefix}", "content": "x"}]', r"has \{prefix\} in a role"),
    ],
)
def test_a_bad_file_is_one_sentence(file: str, content: str | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        prompt_of(str(tmp_path / file), Tokenizing(queue(), "q"))


def test_a_model_without_a_template_and_a_template_that_refuses_are_named(tmp_path: Path) -> None:
    bare = queue()
    bare.chat_template = None
    with pytest.raises(ModelError, match="bare has no chat template"):
        prompt_of("chat", Tokenizing(bare, "bare"))
    with pytest.raises(ConfigError, match="needs a Hugging Face tokenizer"):
        make_prompt("chat", None, bos_id=None)
    (tmp_path / "sys.json").write_text(
        json.dumps([{"role": "system", "content": "{prefix}"}, {"role": "user", "content": "x"}]), encoding="utf-8"
    )
    with pytest.raises(ModelError, match="chat template of b refuses the conversation: no system"):
        prompt_of(str(tmp_path / "sys.json"), Tokenizing(brackets(), "b"))


def test_a_window_with_a_prompt_is_another_window_to_the_model() -> None:
    tokenizing = Tokenizing(queue(), "q")
    plain = window_of(tokenizing, TEXT.replace("<s>", "and"))
    given = prompt_of("chat", tokenizing).around(plain, "")
    assert plain.context_ids == plain.prefix_ids
    assert given.ids == given.context_ids + given.suffix_ids
    assert replace(given, given_ids=None) == plain
