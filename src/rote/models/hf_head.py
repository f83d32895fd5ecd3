"""The output head of a Hugging Face model, applied to a few rows at a time.

The body gives hidden states; the head turns each into one logit per vocabulary entry. Some models scale or cap those
logits afterwards. Whether we reproduce that is decided by comparing with the model's own forward; if not, the model's
own forward is used on fewer windows at a time.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 27}
"""Logits computed at once: small enough for the CPU's cache, large enough to keep a GPU busy."""
PROBE_IDS = ((3, 1, 4, 1, 5, 9, 2, 6),)
PROBE_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


class ChunkedHead:
    """A model in two parts: a body that gives states, and a head that turns states into logits, float32."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._body = model.get_decoder() if hasattr(model, "get_decoder") else None
        config = model.config.get_text_config()
        self._softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        self.is_split = self._body is not None and self._reproduces_forward()
        limit = CHUNK_ELEMENTS["cuda" if model.device.type == "cuda" else "cpu"]
        self.rows_at_once = max(1, limit // self.vocab_size)
        """Rows of logits that exist at once when they are computed in chunks."""

    def states(self, outputs: Tensor, **inputs: Tensor) -> Tensor:
        """What `logits` needs to know at places of the inputs, which are counted through all sequences. [outputs, …]

        Hidden states; finished logits where the model's own head must be used.
        """
        whole = self._hidden(**inputs) if self.is_split else self.model(**inputs, use_cache=False).logits
        flat: Tensor = whole.flatten(0, 1)
        return flat.index_select(0, outputs.to(flat.device))

    def no_states(self) -> Tensor:
        """States of no place."""
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight.new_empty(0, weight.shape[1 if self.is_split else 0])

    def logits(self, states: Tensor) -> Tensor:
        """[rows, vocab] float32"""
        return (self._logits(states) if self.is_split else states).float()

    def chunks(self, states: Tensor) -> Iterator[Tensor]:
        """The same, a few rows at a time."""
        return map(self.logits, torch.split(states, self.rows_at_once))

    def sequences_at_once(self, count: int, length: int) -> int:
        """How many of `count` sequences may share a call of `states`: logits of whole sequences are large."""
        return count if self.is_split else max(1, min(count, self.rows_at_once // length))

    def _hidden(self, **inputs: Tensor) -> Tensor:
        assert self._body is not None
        hidden: Tensor = self._body(**inputs, use_cache=False).last_hidden_state
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.model.get_output_embeddings()(hidden)
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits

    @torch.inference_mode()
    def _reproduces_forward(self) -> bool:
        ids = torch.tensor(PROBE_IDS, device=self.model.device) % self.vocab_size
        try:
            ours = self._logits(self._hidden(input_ids=ids)[0]).float()
        except (AttributeError, TypeError, RuntimeError):
            return False
        theirs = self.model(input_ids=ids, use_cache=False).logits[0].float()
        if ours.shape != theirs.shape:
            return False
        error = (ours - theirs).abs().amax() / theirs.abs().amax().clamp(min=1.0)
        return bool(error < PROBE_TOLERANCE.get(self.model.dtype, 1e-4))
