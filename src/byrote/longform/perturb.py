"""Seeded perturbations of the fixed continuation instruction: a leak test for systems one may test.

The pool holds no perturbation, eight single ones and fixed chains of them. Nothing but the instruction is ever passed
in here: not the book, not the answers.
"""

import random
import string
from collections.abc import Callable

SIGMA = 0.6
Perturbation = Callable[[str, random.Random], str]

_LOOK_ALIKES = {
    "a": "@áàâ", "b": "8ß", "c": "çć(", "e": "3éèê", "g": "9ğ", "i": "1!íî", "l": "1|ł", "n": "ñń",
    "o": "0óòô", "s": "$5š", "t": "7+", "u": "úùû", "y": "ýÿ", "z": "2ž",
}  # fmt: skip
_MARKS = ".,;:!?"


def perturbed(instruction: str, *, number: int, seed: int) -> str:
    """Variant `number` of the instruction, decided by the seed; number 0 is the instruction itself."""
    if number == 0:
        return instruction
    rng = random.Random(f"{seed}/{number}")
    for step in rng.choice(POOL):
        instruction = step(instruction, rng)
    return instruction


def capitalisation(text: str, rng: random.Random) -> str:
    return _flip_case(text, rng, probability=rng.choice((0.2, 0.5)))


def random_capitals(text: str, rng: random.Random) -> str:
    return _flip_case(text, rng, probability=SIGMA**0.5)


def spacing(text: str, rng: random.Random) -> str:
    probability = rng.choice((0.05, 0.1))
    pieces = []
    for character, following in zip(text, text[1:] + " ", strict=True):
        if character == " ":
            pieces.append("" if rng.random() < probability else " ")
        elif not following.isspace() and rng.random() < probability:
            pieces.append(character + " ")
        else:
            pieces.append(character)
    return "".join(pieces)


def word_order(text: str, rng: random.Random) -> str:
    """Shuffle the words of each sentence with probability 0.3; the mark that ends the sentence stays at its end."""
    sentences: list[list[str]] = [[]]
    for word in text.split():
        sentences[-1].append(word)
        if word[-1] in ".!?":
            sentences.append([])
    return " ".join(" ".join(_shuffled_sentence(words, rng)) for words in sentences if words)


def look_alikes(text: str, rng: random.Random) -> str:
    probability = rng.choice((0.05, 0.1))

    def substitute(character: str) -> str:
        glyphs = _LOOK_ALIKES.get(character.lower())
        if glyphs is None or rng.random() >= probability:
            return character
        glyph = rng.choice(glyphs)
        return glyph.upper() if character.isupper() and len(glyph.upper()) == 1 else glyph

    return "".join(map(substitute, text))


def punctuation(text: str, rng: random.Random) -> str:
    probability = rng.choice((0.05, 0.1))
    pieces = []
    for character in text:
        is_struck = rng.random() < probability
        if character in _MARKS:
            pieces.append("" if is_struck else character)
        elif character.isalpha() and is_struck:
            pieces.append(character + rng.choice(_MARKS))
        else:
            pieces.append(character)
    return "".join(pieces)


def word_scrambling(text: str, rng: random.Random) -> str:
    """Shuffle the inner letters of words longer than three, each with probability σ^½."""

    def scramble(word: str) -> str:
        if len(word) <= 3 or rng.random() >= SIGMA**0.5:
            return word
        inner = list(word[1:-1])
        rng.shuffle(inner)
        return word[0] + "".join(inner) + word[-1]

    return " ".join(map(scramble, text.split(" ")))


def ascii_noise(text: str, rng: random.Random) -> str:
    """Move printable ASCII characters one code point up or down, each with probability σ³."""

    def shift(character: str) -> str:
        if not " " <= character <= "~" or rng.random() >= SIGMA**3:
            return character
        moved = chr(ord(character) + rng.choice((-1, 1)))
        return moved if moved in string.printable and " " <= moved <= "~" else character

    return "".join(map(shift, text))


def _flip_case(text: str, rng: random.Random, *, probability: float) -> str:
    return "".join(c.swapcase() if c.isalpha() and rng.random() < probability else c for c in text)


def _shuffled_sentence(words: list[str], rng: random.Random) -> list[str]:
    if len(words) < 2 or rng.random() >= 0.3:
        return words
    mark = words[-1][-1] if words[-1][-1] in ".!?" else ""
    bare = [*words[:-1], words[-1].removesuffix(mark)]
    rng.shuffle(bare)
    return [*bare[:-1], bare[-1] + mark]


_SINGLE = (capitalisation, spacing, word_order, look_alikes, punctuation, word_scrambling, random_capitals, ascii_noise)
POOL: tuple[tuple[Perturbation, ...], ...] = (
    (),
    *((each,) for each in _SINGLE),
    (capitalisation, spacing),
    (word_order, look_alikes),
    (spacing, punctuation),
    (word_scrambling, random_capitals, ascii_noise),
)
