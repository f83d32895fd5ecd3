"""What the loopback server knows: a text by heart, or nothing."""

from collections.abc import Mapping
from typing import Any


class KnowsByHeart:
    """Goes on with the one text it knows, a word a token, from wherever the conversation stands.

    It keeps no state: the first message ends in a prefix of the text, and the assistant's messages say how far it
    came. A prefix of any other text gets invented words. At the end of the text it says THE END.
    """

    def __init__(self, text: str) -> None:
        self.words = text.split()

    def __call__(self, body: Mapping[str, Any]) -> list[str]:
        messages = body["messages"]
        limit = body["max_tokens"]
        place = self._after_prefix(messages[0]["content"].split())
        if place is None:
            return [" ".join(f"invented{n}" for n in range(limit))] * body.get("n", 1)
        place += sum(len(message["content"].split()) for message in messages if message["role"] == "assistant")
        answer = self.words[place : place + limit] if place < len(self.words) else ["THE", "END"]
        return [" ".join(answer)] * body.get("n", 1)

    def _after_prefix(self, prompt: list[str], tail: int = 10) -> int | None:
        last = prompt[-tail:]
        places = [n for n in range(tail, len(self.words) + 1) if self.words[n - tail : n] == last]
        return places[0] if places else None
