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
    """Logits at chosen positions of a batch, in chunks of rows, float32."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._body = model.get_decoder() if hasattr(model, "get_decoder") else None
        config = model.config.get_text_config()
        self._softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self._is_split = self._body is not None and self._reproduces_forward()

    def chunks(self, ids: Tensor, places: Tensor) -> Iterator[tuple[int, Tensor]]:
        """(first row, logits [rows, vocab] float32) over windows × places, window by window."""
        vocab_size = self._model.get_output_embeddings().weight.shape[0]
        limit = CHUNK_ELEMENTS["cuda" if ids.device.type == "cuda" else "cpu"]
        rows = max(1, limit // vocab_size)
        if self._is_split:
            hidden = self._hidden(ids)[:, places].flatten(0, 1)
            for first in range(0, len(hidden), rows):
                yield first, self._logits(hidden[first : first + rows]).float()
            return
        windows = max(1, rows // len(places))
        for start in range(0, len(ids), windows):
            logits = self._model(input_ids=ids[start : start + windows], use_cache=False).logits
            yield start * len(places), logits[:, places].flatten(0, 1).float()

    def _hidden(self, ids: Tensor) -> Tensor:
        assert self._body is not None
        hidden: Tensor = self._body(input_ids=ids, use_cache=False).last_hidden_state
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._model.get_output_embeddings()(hidden)
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits

    @torch.inference_mode()
    def _reproduces_forward(self) -> bool:
        ids = torch.tensor(PROBE_IDS, device=self._model.device)
        try:
            ours = self._logits(self._hidden(ids)[0]).float()
        except (AttributeError, TypeError, RuntimeError):
            return False
        theirs = self._model(input_ids=ids, use_cache=False).logits[0].float()
        if ours.shape != theirs.shape:
            return False
        error = (ours - theirs).abs().amax() / theirs.abs().amax().clamp(min=1.0)
        return bool(error < PROBE_TOLERANCE.get(self._model.dtype, 1e-4))
