"""A Hugging Face model as a body that gives states and a head that turns a few states at a time into float32 logits.

Half-precision logits around 20 lie 0.06 or more apart, so that tokens tie and sums are off; products of half-precision
states and weights, summed and returned in float32, cost no more. Some models scale or cap their logits. Whether we
reproduce that is decided by comparing with the model's own forward; if not, the model's own head is used, at its own
precision and on fewer sequences at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from byrote.models.history import History

CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 27}
"""Logits computed at once: small enough for the CPU's cache, large enough to keep a GPU busy."""
MOST_HISTORIES = 64
"""Whole histories evaluated at once."""
PROBE_IDS = ((3, 1, 4, 1, 5, 9, 2, 6),)
LARGE = 8.0
"""States this much larger show caps that ordinary logits hardly touch."""
SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
"""What architectures multiply or divide their logits by, as their settings name it."""


class ChunkedHead:
    """Evaluates a model in two parts: `states` at chosen places, then `logits` of them, float32."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        self._parts = _parts_that_reproduce(model)
        limit = CHUNK_ELEMENTS["cuda" if model.device.type == "cuda" else "cpu"]
        self.rows_at_once = max(1, limit // self.vocab_size)
        """Rows of logits that exist at once when they are computed in chunks."""

    @property
    def is_split(self) -> bool:
        """Whether body and head are known apart; otherwise states are finished logits."""
        return self._parts is not None

    def states(self, outputs: Tensor, **inputs: Tensor) -> Tensor:
        """What `logits` needs at places of the inputs, which are counted through all sequences. [outputs, …]"""
        if self._parts is not None:
            whole = self._parts.hidden(**inputs)
        else:
            whole = self.model(**inputs, use_cache=False).logits
        flat = whole.flatten(0, 1)
        return flat.index_select(0, outputs.to(flat.device))

    def states_of(self, histories: list[History]) -> list[Tensor]:
        """States at the places of whole histories of any lengths."""
        states: list[Tensor] = []
        longest = max((len(history.token_ids) for history in histories), default=1)
        count = self.sequences_at_once(MOST_HISTORIES, longest)
        for first in range(0, len(histories), count):
            some = histories[first : first + count]
            # Padding comes after a history, where a causal model does not attend.
            ids = pad_sequence([history.token_ids for history in some], batch_first=True)
            places = [row * ids.shape[1] + place for row, history in enumerate(some) for place in history.places]
            states.extend(self.states(torch.tensor(places, device=ids.device), input_ids=ids))
        return states

    def logits(self, states: Tensor) -> Tensor:
        """[rows, vocab] float32"""
        return states.float() if self._parts is None else self._parts.logits(states).to(self.model.device)

    def logits_of(self, states: list[Tensor]) -> Tensor:
        """The same for states of their own, or none."""
        return self.logits(torch.stack(states)) if states else torch.empty(0, self.vocab_size, device=self.model.device)

    def chunks(self, states: Tensor) -> Iterator[Tensor]:
        """The same, a few rows at a time."""
        return map(self.logits, torch.split(states, self.rows_at_once))

    def sequences_at_once(self, count: int, length: int) -> int:
        """How many of `count` sequences may share a call of `states`: logits of whole sequences are large."""
        return count if self.is_split else max(1, min(count, self.rows_at_once // length))


class Projection:
    """states [rows, width] → [rows, vocab] float32: the weights as they are, their products summed in float32."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        weight = layer.weight.detach()
        self._returns_float32 = returns_float32(weight)
        # Without such a product half-precision weights are widened once: by block at every call takes longer.
        self._weight = weight if self._returns_float32 else weight.float()
        self._bias = None if layer.bias is None else layer.bias.detach().float()

    def __call__(self, states: Tensor) -> Tensor:
        weight = self._weight
        states = states.to(weight.device)
        if self._returns_float32 and states.dtype == weight.dtype:
            logits = torch.mm(states, weight.T, out_dtype=torch.float32)
        else:
            logits = torch.mm(states.float(), weight.float().T)
        return logits if self._bias is None else logits.add_(self._bias)


def returns_float32(weight: Tensor) -> bool:
    """Whether this device multiplies half-precision matrices of this kind into a float32 one."""
    if weight.dtype not in (torch.bfloat16, torch.float16):
        return False
    try:
        torch.mm(weight[:1], weight[:1].T, out_dtype=torch.float32)
    except (NotImplementedError, RuntimeError, TypeError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Parts:
    body: Any
    project: Callable[[Tensor], Tensor]
    scale: float
    softcap: float | None

    def hidden(self, **inputs: Tensor) -> Tensor:
        hidden: Tensor = self.body(**inputs, use_cache=False).last_hidden_state
        return hidden

    def logits(self, states: Tensor) -> Tensor:
        logits = self.project(states).float()
        if self.scale != 1.0:
            logits = logits.mul_(self.scale)
        if self.softcap is not None:
            logits = logits.div_(self.softcap).tanh_().mul_(self.softcap)
        return logits


@torch.inference_mode()
def _parts_that_reproduce(model: Any) -> _Parts | None:
    """The first combination of body and scale that gives the model's own logits; None when there is none."""
    config = model.config.get_text_config()
    layer = model.get_output_embeddings()
    if layer.weight.is_meta:
        return None  # kept elsewhere until the layer itself is called
    project = Projection(layer) if type(layer) is torch.nn.Linear else layer
    softcap = getattr(config, "final_logit_softcapping", None)
    for body, scale in product(_bodies(model), _scales(config)):
        parts = _Parts(body, project, scale, softcap)
        try:
            if all(_is_reproduced(model, parts, factor) for factor in (1.0, LARGE)):
                return parts
        except (AttributeError, TypeError, ValueError, RuntimeError):
            continue
    return None


def _bodies(model: Any) -> Iterator[Any]:
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    for body in (decoder, getattr(model, "model", None), getattr(model, "base_model", None)):
        if body is not None and body is not model:
            yield body


def _scales(config: Any) -> Iterator[float]:
    yield 1.0
    for name in SCALES:
        if value := getattr(config, name, None):
            yield from (float(value), 1 / float(value))


def _is_reproduced(model: Any, parts: _Parts, factor: float) -> bool:
    """Whether the parts give the model's logits when the body's states are `factor` times as large."""

    def enlarge(module: Any, arguments: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state * factor
        return output

    vocab_size = model.get_output_embeddings().weight.shape[0]
    ids = torch.tensor(PROBE_IDS, device=model.device) % vocab_size
    ours = parts.logits(parts.hidden(input_ids=ids)[0] * factor).to(model.device)
    hook = parts.body.register_forward_hook(enlarge)
    try:
        theirs: Tensor = model(input_ids=ids, use_cache=False).logits[0]
    finally:
        hook.remove()
    # The model rounds its states, its products and whatever it does to them; we do not.
    rounding = 4 * torch.finfo(model.dtype).eps
    theirs = theirs.float()
    tolerance = rounding * theirs.abs() + (rounding / 4 + 1e-4) * theirs.abs().amax()
    return ours.shape == theirs.shape and bool(((ours - theirs).abs() <= tolerance).all())
