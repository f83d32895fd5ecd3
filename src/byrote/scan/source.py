"""What a scan measures: windows of texts, or pairs of prefix and suffix. Read first, cut when the model is there."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from byrote.corpus.overlap import find_shared, mark_shared
from byrote.corpus.pairs import Pair, longest_of, pair_windows, read_pairs
from byrote.corpus.read import Document, read_corpus, require_unique_names
from byrote.corpus.select import CutOptions, choose_pairs, plan_windows, require_windows
from byrote.corpus.text_windows import TextWindowOptions
from byrote.corpus.windows import Finished, Selection, Tally, WindowOptions, WindowSet
from byrote.errors import ConfigError, WindowError
from byrote.models.base import LanguageModel, require_positions
from byrote.models.prompts import FURTHER_TOKENS, ScanPrompt, make_prompt
from byrote.random_order import sample_key
from byrote.scan.options import UNITS_PER_EDIT, RunConfig, parse_shard
from byrote.search.base import TOKENS_PER_TARGET_TOKEN, Limits, target_chars
from byrote.store.parts import ByPlace, Order
from byrote.types import Split, Window

TEXTS_HELD = 64
Given = Sequence[Document | Pair]
"""Texts or pairs as they were read."""


Cut = Callable[[Tally, Finished | None], Iterator[Window]]
"""Cuts the windows that are not finished, and tallies them."""


@dataclass(frozen=True)
class Source:
    """The texts of a scan, and the windows to measure in them, cut while they are measured."""

    documents: list[Document]
    selection: Selection
    cut: Cut
    counted: dict[str, int] = field(default_factory=dict)
    """What a reader should know about the cutting, for the manifest's totals."""
    pairs: Sequence[Window] | None = None
    """Pairs are cut at once; None where windows are cut from texts."""
    pairs_hash: str | None = None
    """Of all pairs, those of other shards included."""
    shortest_suffix: int | None = None
    """Tokens (or characters) of the shortest suffix of all pairs, likewise; windows of texts have the length of the
    options."""
    prompt: ScanPrompt | None = None
    """What stands around every prefix."""
    longest: Limits | None = None
    """Of windows that were cut from texts by characters; those of tokens have the lengths of the options."""

    def sized(self, config: RunConfig) -> RunConfig:
        """The options with the token counts of the longest context and suffix: shapes are made for them."""
        if self.longest is not None:
            prefix_tokens, suffix_tokens = self.longest
            return replace(config, prefix_tokens=prefix_tokens, suffix_tokens=suffix_tokens)
        if self.prompt is None or self.pairs is not None:
            return fitted(config, self.pairs)
        return replace(
            config,
            prefix_tokens=config.prefix_tokens + self.prompt.tokens,
            suffix_tokens=config.suffix_tokens + (0 if self.prompt.lead is None else FURTHER_TOKENS),
            cut_prefix_tokens=None,
            cut_suffix_tokens=None,
        )

    def windows(self, tally: Tally | None = None, *, finished: Finished | None = None) -> Iterator[Window]:
        """The windows that are not finished, cut when they are asked for, in the random order of their names: those up
        to any place of it are a random sample."""
        return self.cut(Tally() if tally is None else tally, finished)

    @cached_property
    def chosen(self) -> WindowSet:
        """All windows as a list, in the order of the finished table."""
        tally = Tally()
        windows = list(self.windows(tally))
        if self.pairs is None:
            place_of = {document.name: place for place, document in enumerate(self.documents)}
            windows.sort(key=lambda window: (place_of[window.document], window.char_start))
        else:
            number_of = {window.window_id: number for number, window in enumerate(self.pairs)}
            windows.sort(key=lambda window: number_of[window.window_id])
        return WindowSet(windows, tally, self.selection)

    def order(self, windows: int) -> Order:
        """The order of a finished table of so many windows."""
        if self.pairs is not None:
            return [window.window_id for window in self.pairs]
        return ByPlace([document.name for document in self.documents], windows)


def read_given(config: RunConfig) -> Given:
    """The texts or pairs that `config` names; exactly one kind of them."""
    if config.pairs and (config.text or config.control):
        raise ConfigError("give --pairs, or --text and --control, not both; pairs say themselves what is a control.")
    if not config.pairs and not config.text:
        raise ConfigError("text is missing; give --text book.txt, or --pairs records.jsonl.")
    if config.pairs:
        return read_pairs(config.pairs, prefix_tokens=config.prefix_tokens, suffix_tokens=config.suffix_tokens)
    return read_corpus(config.text, config.control)


def cut_source(given: Given, model: LanguageModel, config: RunConfig) -> Source:
    """The windows that `config` asks for, controls marked with what they share with targets. There is at least one.

    The texts are gone through once to count the places where windows may begin, once more to find what controls share
    with targets, and for a limit or a sample to choose; no window is kept.
    """
    if len(config.prompt) > 1:
        raise ConfigError(f"prompt is {','.join(config.prompt)}; measure one prompt at a time here.")
    prompt = make_prompt(config.prompt[0], model.tokenizing, bos_id=model.bos_id(config.bos))
    pairs = [one for one in given if isinstance(one, Pair)]
    source = _of_pairs(pairs, model, config) if pairs else _of_texts(given, model, config)
    if prompt is not None:
        source = _prompted(source, prompt, model, config)
    if config.unit == "text" and not pairs:
        source = _measured(source, model, config)
    if not pairs and all(document.split is Split.TARGET for document in source.documents):
        return source
    shared = find_shared(source.documents)
    return replace(source, cut=lambda tally, finished: mark_shared(source.cut(tally, finished), shared))


def _measured(source: Source, model: LanguageModel, config: RunConfig) -> Source:
    """The source with the token counts of its longest windows: all are cut once for that. Dropping long ones instead
    would leave tokenizers with different windows."""
    longest = Limits(1, 1)
    for window in source.windows():
        longest = Limits(*map(max, longest, limits_of([window])))
    passed = (max(config.passage_blocks, default=1) - 1) * longest.suffix_tokens // TOKENS_PER_TARGET_TOKEN
    require_positions(
        model,
        longest.prefix_tokens + passed + longest.suffix_tokens,
        what=f"the longest prefix{', passage' if passed else ''} and an answer of twice the target's tokens are",
        advice="Lower prefix_chars or suffix_chars, or ask for a shorter --passage.",
    )
    return replace(source, longest=longest)


def limits_of(windows: Sequence[Window]) -> Limits:
    """Tokens of the longest context and of the longest answer that is followed."""
    prefix_tokens, suffix_tokens = longest_of(windows)
    is_text = any(window.suffix_text is not None for window in windows)
    return Limits(prefix_tokens, suffix_tokens * (TOKENS_PER_TARGET_TOKEN if is_text else 1))


def target_length(window: Window) -> int:
    """Tokens of its suffix, or characters in normal form: what edits are counted in."""
    return len(target_chars(window.suffix_text) or window.suffix_ids)


def _prompted(source: Source, prompt: ScanPrompt, model: LanguageModel, config: RunConfig) -> Source:
    """The same windows with the prompt around their prefixes."""

    def around(windows: Iterable[Window]) -> Iterator[Window]:
        return prompt_windows(windows, prompt, {(one.split, one.name): one for one in source.documents})

    def cut(tally: Tally, finished: Finished | None) -> Iterator[Window]:
        return around(source.cut(tally, finished))

    pairs = None if source.pairs is None else list(around(source.pairs))
    prompted = replace(source, cut=cut, pairs=pairs, prompt=prompt)
    if config.unit == "tokens" or pairs is not None:
        what = f"prompt {prompt.name}, prefix + suffix are"
        require_positions(model, sum(prompted.sized(config).limits), what=what)
    return prompted


def prompt_windows(
    windows: Iterable[Window], prompt: ScanPrompt, documents: Mapping[tuple[Split, str], Document]
) -> Iterator[Window]:
    """Windows with the prompt around their prefixes; `documents` have the texts of their suffixes."""
    # Windows come from all texts in turn.
    held = lru_cache(maxsize=TEXTS_HELD)(lambda split, name: documents[split, name].held())
    for window in windows:
        text = held(window.split, window.document).text
        yield prompt.around(window, text[window.suffix_char_start : window.char_end])


def fitted(config: RunConfig, windows: Sequence[Window] | None) -> RunConfig:
    """The options with the lengths of the longest prefix and suffix: shapes are made for them. The edit budget of the
    run stays.

    Windows of texts (None) all have the lengths of the options.
    """
    if not windows:
        return config
    prefix_tokens, suffix_tokens = limits_of(windows)
    return replace(
        config,
        prefix_tokens=prefix_tokens,
        suffix_tokens=suffix_tokens,
        suffix_chars=max(config.suffix_chars, *(len(window.suffix_text or "") for window in windows)),
        edit_budget=config.edits,
    )


def with_edit_budget(config: RunConfig, shortest: int | None) -> RunConfig:
    """The options with the edit budget as a number. One that was not given is a tenth of the suffix, and where suffixes
    differ in length a tenth of the `shortest`: a budget is never more than a tenth of any suffix."""
    edits = config.edits
    if config.edit_budget is None and shortest is not None:
        edits = shortest // UNITS_PER_EDIT
    return replace(config, edit_budget=edits)


def _of_texts(given: Given, model: LanguageModel, config: RunConfig) -> Source:
    documents = [one for one in given if isinstance(one, Document)]
    require_unique_names(documents)
    stride_chars = None if config.whole_documents else config.stride_chars
    blocks = max(config.passage_blocks, default=1)
    options: CutOptions = TextWindowOptions(config.prefix_chars, config.suffix_chars, stride_chars, blocks)
    if config.unit == "tokens":
        options = WindowOptions(
            prefix_tokens=config.prefix_tokens,
            suffix_tokens=config.suffix_tokens,
            stride_chars=stride_chars,
            prefix_room=config.cut_prefix_tokens,
            suffix_room=config.cut_suffix_tokens,
            passage_tokens=max(config.passage, default=None),
        )
    plan = plan_windows(documents, options, limit=config.limit, sample=config.sample, seed=config.seed)
    bos_id, shard = model.bos_id(config.bos), parse_shard(config.shard or "0/1")

    def cut(tally: Tally, finished: Finished | None) -> Iterator[Window]:
        return plan.cut(model, bos_id=bos_id, tally=tally, finished=finished, is_wanted=shard.holds)

    source, tally = Source(documents, plan.selection, cut), Tally()
    # A shard may come out empty; texts may not.
    if next(source.windows(tally), None) is None and config.shard is None:
        require_windows(tally, options)
    return source


def _of_pairs(pairs: Sequence[Pair], model: LanguageModel, config: RunConfig) -> Source:
    chosen, selection = choose_pairs(pairs, limit=config.limit, sample=config.sample, seed=config.seed)
    made = pair_windows(
        chosen,
        model,
        bos_id=model.bos_id(config.bos),
        marked_prefix_tokens=config.prefix_tokens,
        marked_prefix_chars=config.prefix_chars if config.unit == "text" else None,
    )
    _require_sizes(chosen, made.windows, model, config)
    # In turn, so that merging can put them back into the order of the files.
    shard = parse_shard(config.shard or "0/1")
    own = made.windows[shard.index :: shard.count]

    def cut(tally: Tally, finished: Finished | None) -> Iterator[Window]:
        for window in sorted(own, key=lambda window: sample_key(window.window_id, config.seed)):
            if finished is None or window.window_id not in finished:
                tally.add(window)
                yield window

    return Source(
        made.documents,
        selection,
        cut,
        {"boundaries_merged": made.merged},
        pairs=own,
        pairs_hash=_hash_of(made.windows),
        shortest_suffix=min(map(target_length, made.windows)),
    )


def _hash_of(windows: Iterable[Window]) -> str:
    """SHA-256 of all pairs as one JSON list, never held whole."""
    digest, before = hashlib.sha256(), "["
    for one in windows:
        digest.update((before + json.dumps([one.window_id, one.prefix_ids, one.suffix_ids, one.further])).encode())
        before = ", "
    digest.update(b"]")
    return digest.hexdigest()


def _require_sizes(pairs: Sequence[Pair], windows: Sequence[Window], model: LanguageModel, config: RunConfig) -> None:
    """Every pair fits the model, and its suffix is longer than the edit budget."""
    what, advice = "has", "Shorten its prefix."
    if config.unit == "text":
        what, advice = "and an answer of twice the tokens of its suffix may be", "Shorten its prefix or its suffix."
    for pair, window in zip(pairs, windows, strict=True):
        require_positions(model, sum(limits_of([window])), what=f"{pair.place} {what}", advice=advice)
        if "near" in config.measures and (length := target_length(window)) <= (config.edit_budget or 0):
            raise WindowError(
                f"{pair.place} has a suffix of {length} {config.counted}, and everything is within "
                f"{config.edit_budget} edits of it; lower --edit-budget, or leave near out of --measures."
            )
