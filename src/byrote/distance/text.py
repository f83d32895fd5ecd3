"""Edit distance over characters: is an answer near the target as a reader sees it, whatever its tokens?

Both are compared in their normal form N (`normal_form.py`). With L = |N(target)|, an answer is complete at the first
token that covers L characters of N(answer), and later characters of that token do not count. An answer that ends
earlier is compared as it is. With D[i, j] the edit distance of the first i characters of the answer and the first j of
the target, the least final distance is

    min_j D[i, j] + max(0, i − j)

because an answer may end at any time. Tokens may hold parts of a character's UTF-8 sequence: the character counts once
it is complete, a broken sequence is U+FFFD as for Python's errors="replace", and one that the end of an answer leaves
incomplete is dropped.
"""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from byrote.distance.base import UNREACHABLE, Advanced, Viability, padded_rows
from byrote.normal_form import FORMS, LONGEST_FORM, normalised, normalised_piece

BLANK, DASH, REPLACEMENT = ord(" "), ord("-"), 0xFFFD


@cache
def _changed_forms() -> tuple[Tensor, Tensor]:
    """Code points whose normal form is another, and these forms, −1 behind them. [points], [points, LONGEST_FORM]"""
    last_decomposed = 0x2FA1D
    points = [code for code in range(0x80, last_decomposed + 1) if FORMS[code] != chr(code)]
    forms = torch.full((len(points), LONGEST_FORM), -1, dtype=torch.int32)
    for row, code in zip(forms, points, strict=True):
        form = FORMS[code]
        row[: len(form)] = torch.tensor([ord(part) for part in form])
    return torch.tensor(points, dtype=torch.int32), forms


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """What every token of a vocabulary adds to a text, as tensors.

    A token is a row of characters in normal form. One that begins with continuation bytes of UTF-8 has further rows,
    for when the first of them complete a character that an earlier token began.
    """

    pieces: tuple[bytes | None, ...]
    """UTF-8 of every token, perhaps parts of a sequence; None for tokens without text."""
    longest: int
    """Characters of the longest row."""
    has_parts: bool
    """Whether a token begins or ends within a character."""
    characters: Tensor  # [characters of all rows] int32
    starts: Tensor  # [rows] int64
    lengths: Tensor  # [rows] int64
    tails: Tensor  # [rows, 2] int64: bits of a character that the row begins, and how many bytes it lacks
    rows: Tensor  # [tokens, 4] int64: row by the number of leading continuation bytes that an earlier token takes
    heads: Tensor  # [tokens, 3] int64: the bits of these bytes, −1 where there are fewer
    sizes: Tensor  # [tokens] int64: bytes
    points: Tensor  # [points] int32: code points that have another normal form
    forms: Tensor  # [points, LONGEST_FORM] int32

    @classmethod
    def of(cls, pieces: Sequence[bytes | None]) -> "TokenTexts":
        known = [piece or b"" for piece in pieces]
        heads = torch.full((len(known), 3), -1)
        rows = torch.arange(len(known))[:, None].repeat(1, 4)
        made = [_row(piece) for piece in known]
        for token, piece in enumerate(known):
            leading = len(piece[:3]) - len(piece[:3].lstrip(_CONTINUATION))
            for taken in range(1, leading + 1):
                heads[token, taken - 1] = piece[taken - 1] & 0x3F
                rows[token, taken:] = len(made)
                made.append(_row(piece[taken:]))
        lengths = torch.tensor([len(text) for text, _ in made])
        points, forms = _changed_forms()
        return cls(
            tuple(pieces),
            int(lengths.max()),
            bool((heads >= 0).any()) or any(tail[1] for _, tail in made),
            torch.tensor([ord(character) for text, _ in made for character in text] or [-1], dtype=torch.int32),
            lengths.cumsum(0) - lengths,
            lengths,
            torch.tensor([tail for _, tail in made]),
            rows,
            heads,
            torch.tensor([len(piece) for piece in known]),
            points,
            forms,
        )

    def on(self, device: torch.device) -> "TokenTexts":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors: dict[str, Any] = {name: one.to(device) for name, one in values.items() if isinstance(one, Tensor)}
        return replace(self, **tensors)

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of these tokens, an incomplete character at its end dropped."""
        joined = b"".join(self.pieces[token] or b"" for token in token_ids)
        return codecs.getincrementaldecoder("utf-8")("replace").decode(joined)

    def writes(self, token_ids: Sequence[int], text: str) -> bool:
        """Whether these tokens are that text; a tokenizer may lack one of its characters."""
        return normalised(self.text(token_ids)).startswith(normalised(text))


_CONTINUATION = bytes(range(0x80, 0xC0))


def _row(piece: bytes) -> tuple[str, tuple[int, int]]:
    """The characters of a piece that continues no other, and the character it begins: its bits and missing bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, (pending, _) = decoder.decode(piece), decoder.getstate()
    if pending[:1] == b"\xed" and pending[1:] >= b"\xa0":  # a surrogate is broken already; Python waits for its end
        text, pending = text + decoder.decode(b"", True), b""
    if not pending:
        return normalised_piece(text), (0, 0)
    size = 2 if pending[0] < 0xE0 else 3 if pending[0] < 0xF0 else 4
    bits = pending[0] & (0x7F >> size)
    for byte in pending[1:]:
        bits = bits << 6 | byte & 0x3F
    return normalised_piece(text), (bits, size - len(pending))


class Begun(NamedTuple):
    """An answer that has begun before its first token: by characters of the token before."""

    state: tuple[int, ...]
    least: int
    """No completion is nearer to the target; of a complete one its distance."""
    is_complete: bool
    if_ended: int
    """Its distance if it ends here."""


class TextDistance(Viability):
    """Viability by a banded row of character edits. The state is D[i, i + o] for o = −⌊d/2⌋ … d at budget d, then i,
    the last character if it is a blank or a dash, else 0, and the bits and missing bytes of a begun character."""

    def __init__(self, budget: int, texts: TokenTexts, *, longest: int) -> None:
        """`longest`: characters of a target, at most."""
        super().__init__(budget)
        self._texts, self._longest = texts, longest
        self._before, self._after = budget // 2, budget
        self._band = self._before + self._after + 1
        self.width = self._band + 4

    def initial(self) -> Tensor:
        offsets = torch.arange(-self._before, self._after + 1)
        # As if behind a blank: those at the beginning are dropped.
        further = torch.tensor([0, BLANK, 0, 0])
        return torch.cat([torch.where(offsets >= 0, offsets, UNREACHABLE), further]).to(torch.int16)

    def pad(self, suffixes: Sequence[Sequence[int]], length: int) -> Tensor:
        """`suffixes` are the characters of normalised targets."""
        return padded_rows(suffixes, self._longest, margin=self._after)

    def advance(self, state: Tensor, tokens: Tensor, *, padded: Tensor, step: Tensor, length: Tensor) -> Advanced:
        lengths = (padded >= 0).sum(-1)  # [slots]: L
        slots = torch.arange(len(tokens), device=tokens.device)[:, None, None].expand(tokens.shape).flatten()
        ends, flat = lengths[slots], tokens.flatten()
        spread = state.permute(2, 0, 1)[..., None].expand(-1, *tokens.shape).flatten(1)  # [width, children]
        row, (done, last, bits, missing) = spread[: self._band], spread[self._band :].long()
        begun, text_row, bits, missing = self._join(flat, bits, missing)
        targets, first = padded.int().flatten(), slots * padded.shape[1] + self._after
        offsets = torch.arange(-self._before, self._after + 1, device=tokens.device)[:, None]
        for character in (*begun, *self._characters(text_row)):
            is_repeated = (character == last) & ((last == BLANK) | (last == DASH))
            counts = (character >= 0) & ~is_repeated & (done < ends)
            wanted = targets.take(first + done.minimum(ends - 1) + offsets)  # [band, children]
            fresh = row + (wanted != character)
            fresh[:-1] = torch.minimum(fresh[:-1], row[1:] + 1)
            shift = 1
            while shift < self._band:  # skipped target characters: D[i, j] ≤ D[i, j − s] + s
                fresh[shift:] = torch.minimum(fresh[shift:], fresh[:-shift] + shift)
                shift *= 2
            row = torch.where(counts, fresh, row)
            done = done + counts
            last = torch.where(counts, character.long(), last)
        is_complete = done >= ends
        least = (row + (-offsets).clamp(min=0).to(torch.int16)).amin(0)
        least = torch.where(is_complete, row[self._before], least)
        last = torch.where((last == BLANK) | (last == DASH), last, 0)
        further = torch.stack([done, last, bits, missing]).to(torch.int16)
        return Advanced(
            torch.cat([row, further]).reshape(-1, *tokens.shape).permute(1, 2, 3, 0),
            least.view(tokens.shape),
            is_complete.view(tokens.shape),
            self.if_ended(state, lengths[:, None]),
        )

    def behind(self, covered: int, answer: Sequence[int], target: Sequence[int]) -> Begun:
        """An answer whose first `covered` characters were compared already, against the characters of a further target:
        its answer to that begins with what its last token has behind these."""
        text, tail = _row(b"".join(self._texts.pieces[token] or b"" for token in answer))
        text = text.lstrip(" ")
        state, last = self.initial(), text[:covered][-1:]
        state[self._band + 1] = ord(last) if last in (" ", "-") else 0
        piece = TokenTexts.of([text[covered:].encode()])
        clock, token = torch.zeros(1, dtype=torch.int64), torch.zeros(1, 1, 1, dtype=torch.int64)
        rule, padded = TextDistance(self.budget, piece, longest=self._longest), self.pad([target], 0)
        found = rule.advance(state.expand(1, 1, -1), token, padded=padded, step=clock, length=clock)
        state = found.state[0, 0, 0]
        state[-2:] = torch.tensor(tail)
        if_ended = self.if_ended(state, torch.tensor(len(target)))
        return Begun(tuple(state.tolist()), int(found.least), bool(found.is_complete), int(if_ended))

    def characters(self, state: Tensor) -> Tensor:
        """i of states [..., width]."""
        return state[..., self._band]

    def if_ended(self, state: Tensor, lengths: Tensor) -> Tensor:
        """D[i, L] of answers in these states [..., width] whose targets have so many characters [...]."""
        place = lengths - state[..., self._band] + self._before
        distance = state.gather(-1, place.clamp(max=self._band - 1)[..., None].long())[..., 0]
        return torch.where(place < self._band, distance, UNREACHABLE)

    def _join(self, tokens: Tensor, bits: Tensor, missing: Tensor) -> tuple[Sequence[Tensor], Tensor, Tensor, Tensor]:
        """The characters that `tokens` complete or break, by place; the rows of what they add behind them; and the
        character that is begun then."""
        texts = self._texts
        if not texts.has_parts:
            return (), texts.rows[tokens, 0], bits, missing
        was_begun, taken = missing > 0, torch.zeros_like(missing)
        for place, head in enumerate(texts.heads[tokens].unbind(-1)):
            # The second byte decides whether a sequence is overlong, a surrogate or beyond Unicode.
            is_odd = (missing == 2) & ((bits == 0) & (head < 0x20) | (bits == 0xD) & (head >= 0x20))
            is_odd |= (missing == 3) & ((bits == 0) & (head < 0x10) | (bits == 4) & (head >= 0x10))
            continues = (missing > 0) & (head >= 0) & (taken == place) & ~is_odd
            bits = torch.where(continues, bits * 64 + head, bits)
            missing = missing - continues.long()
            taken = taken + continues.long()
        rest = texts.rows[tokens, taken]
        is_whole, goes_on = was_begun & (missing == 0), texts.sizes[tokens] > taken
        is_broken = was_begun & (missing > 0) & goes_on
        known = torch.searchsorted(texts.points, bits.int()).clamp(max=len(texts.points) - 1)
        alone = torch.nn.functional.pad(bits[:, None].int(), (0, LONGEST_FORM - 1), value=-1)
        form = torch.where((texts.points[known] == bits)[:, None], texts.forms[known], alone)
        form = torch.where(is_whole[:, None], form, -1)
        form[:, 0] = torch.where(is_broken, REPLACEMENT, form[:, 0])
        is_settled = (missing == 0) | is_broken
        tail = texts.tails[rest]
        return (
            form.unbind(-1),
            rest,
            torch.where(is_settled, tail[:, 0], bits),
            torch.where(is_settled, tail[:, 1], missing),
        )

    def _characters(self, rows: Tensor) -> Iterator[Tensor]:
        """The characters of these rows, one place after the other, −1 behind their ends."""
        texts = self._texts
        starts, lengths = texts.starts[rows], texts.lengths[rows]
        # A GPU need not wait for the host to learn how many there are.
        most = texts.longest if rows.is_cuda else int(lengths.max())
        for place in range(most):
            places = (starts + place).clamp(max=len(texts.characters) - 1)
            yield torch.where(place < lengths, texts.characters[places], -1)
