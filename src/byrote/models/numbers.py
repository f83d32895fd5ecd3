"""Weights and logits that are not numbers are an error, never a verdict.

Minus infinity is a legal logit: a token that cannot come. NaN, plus infinity and a row without any possible token are
not. They are made NaN where probabilities are made (`policy.keep`, `models.scoring`), travel with numbers that the host
reads anyway, and are refused there by name; no forward waits for a check.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch

from byrote.errors import ModelError


def require_numbers(log_probs: Iterable[float], dtype: torch.dtype, *, what: str) -> None:
    """Refuse NaN among log-probabilities; `what` names their origin."""
    if any(math.isnan(value) for value in log_probs):
        raise ModelError(
            f"the model's logits for {what} are not numbers (NaN or infinity) in {_name(dtype)}. {_advice(dtype)}"
        )


def check_weights(model: Any, name: str) -> None:
    """Refuse weights that are not numbers, by the name of the first such layer."""
    for layer, weight in model.named_parameters():
        if weight.is_meta or not weight.is_floating_point() or not weight.numel():
            continue
        extremes = torch.stack(torch.aminmax(weight.detach()))
        if not bool(extremes.isfinite().all()):
            raise ModelError(
                f"{name} has weights that are not numbers (NaN or infinity): {layer} in {_name(weight.dtype)}. "
                f"{_advice(weight.dtype)}"
            )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _advice(dtype: torch.dtype) -> str:
    if dtype == torch.float16:
        return "Try --dtype bfloat16 or --dtype float32."
    if dtype == torch.bfloat16:
        return "Try --dtype float32."
    return "The model is broken; get its files again."
