"""What a run folder says of a scan beside its rows: what makes it this run, its texts, its device."""

from collections.abc import Mapping
from typing import Any

from rote.models.base import LanguageModel
from rote.scan.membership import reference_hash
from rote.scan.options import RunConfig
from rote.scan.pipeline import Facts
from rote.scan.source import Source


def run_identity(model: LanguageModel, source: Source, config: RunConfig) -> dict[str, Any]:
    """What makes two runs the same run: options, model, texts or pairs. Where and in which batches it runs does not."""
    identity: dict[str, Any] = {
        "config": config.identity(),
        "model": model.identity.told_apart_by,
        "texts": {f"{document.split}:{document.name}": document.content_hash for document in source.documents},
    }
    further = {"pairs": source.pairs_hash, "shard": config.shard, "reference": reference_hash(config)}
    return identity | {name: value for name, value in further.items() if value is not None}


def texts_section(
    source: Source,
    windows: Mapping[str, int],
    short: Mapping[str, int],
    facts: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    copies: dict[str, set[int | None]] = {}
    for window in source.pairs or ():
        copies.setdefault(window.document, set()).add(window.further.get("copies"))
    return {
        document.name: {
            "split": str(document.split),
            "content_hash": document.content_hash,
            "characters": document.characters,
            "windows": windows.get(document.name, 0),
            "short_windows": short.get(document.name, 0),
            **_known_copies(copies.get(document.name, set())),
            **facts.get(document.name, {}),
        }
        for document in source.documents
    }


def _known_copies(copies: set[int | None]) -> dict[str, int]:
    """A document's copies in training, where its windows agree on a number."""
    known = copies - {None}
    return {"copies": known.pop()} if len(copies) == 1 and known else {}  # type: ignore[dict-item]


def device_section(model: LanguageModel, facts: Facts) -> dict[str, Any]:
    import torch

    name = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "cpu"
    return {
        "name": name,
        "threads": torch.get_num_threads(),
        "slots": facts.slots,
        "peak_entries_per_slot": facts.peak_entries,
        "bytes_per_entry": model.tree_bytes_per_entry() if facts.slots else None,
        "tree_search": model.searches_trees if facts.slots else None,
        "forwards": facts.forwards,
    }
