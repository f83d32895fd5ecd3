"""What a scan measures: windows of texts, or pairs of prefix and suffix. Read first, cut when the model is there."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rote.corpus.documents import Document, read_corpus
from rote.corpus.pair_files import Pair, read_pairs
from rote.corpus.pair_windows import choose_pairs, longest_of, pair_windows
from rote.corpus.select import select_windows
from rote.corpus.shared import find_shared, mark_shared
from rote.corpus.windows import Tally, WindowOptions, WindowSet
from rote.errors import ConfigError, WindowError
from rote.models.base import LanguageModel
from rote.scan.options import RunConfig
from rote.scan.shard import parse_shard
from rote.store.merge import ByPlace, Order
from rote.types import Split, Window

Given = list[Document] | list[Pair]
"""Texts or pairs as they were read."""


@dataclass(frozen=True, slots=True)
class Source:
    """The windows of a scan with the texts they stand in."""

    documents: list[Document]
    chosen: WindowSet
    counted: dict[str, int] = field(default_factory=dict)
    """What a reader should know about the cutting, for the manifest's totals."""
    pairs_hash: str | None = None
    """Of all pairs, those of other shards included."""

    @property
    def order(self) -> Order:
        """The order of the finished table."""
        if self.pairs_hash is not None:
            return [window.window_id for window in self.chosen.windows]
        return ByPlace([document.name for document in self.documents], len(self.chosen.windows))


def read_given(config: RunConfig) -> Given:
    """The texts or pairs that `config` names; exactly one kind of them."""
    if config.pairs and (config.text or config.control):
        raise ConfigError("give --pairs, or --text and --control, not both; pairs say themselves what is a control.")
    if not config.pairs and not config.text:
        raise ConfigError("text is missing; give --text book.txt, or --pairs records.jsonl.")
    return read_pairs(config.pairs) if config.pairs else read_corpus(config.text, config.control)


def cut_source(given: Given, model: LanguageModel, config: RunConfig) -> Source:
    """The windows that `config` asks for, controls marked with what they share with targets."""
    pairs = [one for one in given if isinstance(one, Pair)]
    source = _of_pairs(pairs, model, config) if pairs else _of_texts(given, model, config)
    if any(document.split is Split.CONTROL for document in source.documents) or pairs:
        windows = list(mark_shared(source.chosen.windows, find_shared(source.documents)))
        return replace(source, chosen=replace(source.chosen, windows=windows))
    return source


def fitted(config: RunConfig, windows: Sequence[Window]) -> RunConfig:
    """The options with the token counts of the longest prefix and suffix: shapes are made for them."""
    if not windows:
        return config
    prefix_tokens, suffix_tokens = longest_of(windows)
    return replace(config, prefix_tokens=prefix_tokens, suffix_tokens=suffix_tokens)


def _of_texts(given: Given, model: LanguageModel, config: RunConfig) -> Source:
    documents = [one for one in given if isinstance(one, Document)]
    options = WindowOptions(
        prefix_tokens=config.prefix_tokens,
        suffix_tokens=config.suffix_tokens,
        stride_chars=None if config.whole_documents else config.stride_chars,
    )
    bos_id = model.bos_id(config.bos)
    chosen = select_windows(
        documents,
        model,
        options,
        bos_id=bos_id,
        limit=config.limit,
        sample=config.sample,
        seed=config.seed,
        is_wanted=None if config.shard is None else parse_shard(config.shard).holds,
    )
    return Source(documents, chosen)


def _of_pairs(pairs: Sequence[Pair], model: LanguageModel, config: RunConfig) -> Source:
    chosen, selection = choose_pairs(pairs, limit=config.limit, sample=config.sample, seed=config.seed)
    made = pair_windows(chosen, model, bos_id=model.bos_id(config.bos), marked_prefix_tokens=config.prefix_tokens)
    _require_sizes(chosen, made.windows, model, config)
    rows = [[one.window_id, one.prefix_ids, one.suffix_ids, one.further] for one in made.windows]
    pairs_hash = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    # In turn, so that merging can put them back into the order of the files.
    shard = parse_shard(config.shard or "0/1")
    own = made.windows[shard.index :: shard.count]
    tally = Tally(Counter(window.document for window in own))
    return Source(
        made.documents, WindowSet(own, tally, selection), {"boundaries_merged": made.merged}, pairs_hash=pairs_hash
    )


def _require_sizes(pairs: Sequence[Pair], windows: Sequence[Window], model: LanguageModel, config: RunConfig) -> None:
    """Every pair fits the model, and its suffix is longer than the edit budget."""
    for pair, window in zip(pairs, windows, strict=True):
        if model.max_positions is not None and len(window.ids) > model.max_positions:
            raise WindowError(
                f"{pair.place} has {len(window.ids)} tokens, but {model.name} takes at most {model.max_positions}; "
                "shorten its prefix."
            )
        if "near" in config.measures and len(window.suffix_ids) <= config.edit_budget:
            raise WindowError(
                f"{pair.place} has a suffix of {len(window.suffix_ids)} tokens, and everything is within "
                f"{config.edit_budget} edits of it; lower --edit-budget, or leave near out of --measures."
            )
