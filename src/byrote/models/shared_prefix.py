"""Many suffixes scored against many prefixes: each prefix is evaluated once, each different suffix beginning once.

The suffixes form a trie. Per prefix its tokens are evaluated into a slot of a tree session; then the inner nodes of
the trie are evaluated in groups, every node attending to the prefix, its ancestors and itself. The last token of a
suffix is never evaluated: its probability is read where its parent stands. So a prefix of `a` tokens costs at most
`a + Σ (T − 1)` token evaluations for all suffixes together, and never `suffixes · (a + T)`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from byrote.errors import ConfigError
from byrote.models.base import TreeBatch, TreeModel, TreeSession, require_positions
from byrote.models.packing import Chains, pack
from byrote.models.scoring import require_numbers, score_tokens
from byrote.policy import Policy, log_weight_of_all

PLAIN = Policy(temperature=1.0, top_k=None)
"""The model's own probabilities: no temperature, no truncation."""
LOGITS_AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 28}
QUERIES_AT_ONCE = {"cpu": 512, "cuda": 8192}
LANES = {"cpu": 128, "cuda": 256}
"""Trie nodes per slot and forward; more would only widen the attention mask."""
CONTEXT_ADVICE = "Shorten --prefix-tokens or the suffixes."


@dataclass(frozen=True, slots=True)
class TrieGroup:
    """Some suffixes as a trie. Row 0 of the logits is the prefix itself, row n + 1 is inner node n."""

    suffixes: tuple[int, ...]
    """Which of the distinct suffixes these are."""
    node_ids: Tensor  # [nodes] int64: tokens that are evaluated
    node_depths: Tensor  # [nodes] int64: 0 for a suffix's first token
    ancestry: Tensor  # [nodes, nodes] bool: ancestors and itself
    edge_rows: Tensor  # [edges] int64: row of logits an edge's token is read from
    edge_ids: Tensor  # [edges] int64: the edge's token
    paths: Tensor  # [suffixes, edges] float64: 1 where the suffix runs along the edge

    @property
    def nodes(self) -> int:
        return len(self.node_ids)


class SharedPrefixScorer:
    """log P(suffix | prefix) of every suffix after every prefix, under one policy."""

    def __init__(
        self, model: TreeModel, suffixes: Sequence[Sequence[int]], policy: Policy = PLAIN, *, lanes: int | None = None
    ) -> None:
        if not suffixes or not all(len(suffix) for suffix in suffixes):
            raise ConfigError("a suffix without tokens has no probability; give at least one token for each.")
        policy.check_vocabulary(model.vocab_size)
        self._model, self._policy = model, policy
        distinct = sorted({tuple(suffix) for suffix in suffixes})
        place_of = {suffix: place for place, suffix in enumerate(distinct)}
        self._places = torch.tensor([place_of[tuple(suffix)] for suffix in suffixes])
        self._distinct = len(distinct)
        self.longest_suffix = max(map(len, distinct))
        kind = "cuda" if model.device.type == "cuda" else "cpu"
        self._queries = max(1, min(QUERIES_AT_ONCE[kind], LOGITS_AT_ONCE[kind] // model.vocab_size))
        capacity = min(LANES[kind], self._queries) if lanes is None else lanes
        self._groups = [build_group(group, distinct, model.device) for group in _grouped(distinct, capacity)]
        self._widest = max(group.nodes for group in self._groups)
        self.evals_per_prefix = sum(group.nodes for group in self._groups)
        """Token evaluations of all suffixes after one prefix, the prefix itself not counted."""

    def token_evals(self, prefixes: Sequence[Sequence[int]]) -> int:
        return sum(len(prefix) + self.evals_per_prefix for prefix in prefixes)

    @torch.inference_mode()
    def score(self, prefixes: Sequence[Sequence[int]]) -> Tensor:
        """[prefixes, suffixes] float64 on the CPU, natural logarithms, −inf where the policy forbids a token."""
        if not all(len(prefix) for prefix in prefixes):
            raise ConfigError("a prefix without tokens cannot be continued; give at least one token, BOS for example.")
        longest = max(map(len, prefixes), default=0) + self.longest_suffix
        require_positions(self._model, longest, advice=CONTEXT_ADVICE)
        slots = max(1, self._queries // max(1, self._widest))
        rows = [self._score_batch(prefixes[first : first + slots]) for first in range(0, len(prefixes), slots)]
        return torch.cat(rows)[:, self._places] if rows else torch.empty(0, len(self._places), dtype=torch.float64)

    def _score_batch(self, prefixes: Sequence[Sequence[int]]) -> Tensor:
        longest = max(map(len, prefixes))
        session = self._model.open_tree(len(prefixes), longest + self._widest, longest=longest + self.longest_suffix)
        root = session.forward(pack(chains=Chains(range(len(prefixes)), prefixes), device=self._model.device))
        log_p = torch.empty(len(prefixes), self._distinct, dtype=torch.float64)
        for group in self._groups:
            log_p[:, list(group.suffixes)] = self._score_group(session, group, prefixes, root).cpu()
        require_numbers(log_p.sum(-1).tolist(), self._model.dtype, what="suffixes after other prefixes")
        return log_p

    def _score_group(
        self, session: TreeSession, group: TrieGroup, prefixes: Sequence[Sequence[int]], root: Tensor
    ) -> Tensor:
        """[slots, suffixes of the group] float64."""
        slots = len(prefixes)
        logits = root[:, None]  # [slots, 1 + nodes, vocab]
        if group.nodes:
            inner = session.forward(self._node_batch(group, prefixes))
            logits = torch.cat([logits, inner.reshape(slots, group.nodes, -1)], 1)
        steps = self._edge_log_probs(logits, group)  # [slots, edges]
        # A forbidden token is −inf, and −inf · 0 is NaN: sum the allowed ones and mark the rest. What is NaN stays NaN.
        forbidden = (torch.isinf(steps).double() @ group.paths.T) > 0
        total = torch.where(torch.isinf(steps), 0.0, steps) @ group.paths.T
        return torch.where(forbidden & ~total.isnan(), -torch.inf, total)

    def _edge_log_probs(self, logits: Tensor, group: TrieGroup) -> Tensor:
        if self._policy.top_k is None and self._policy.top_p is None:
            highest = logits.amax(-1, keepdim=True)
            whole = log_weight_of_all(logits, highest, self._policy.temperature)  # [slots, rows]
            wanted = logits[:, group.edge_rows, group.edge_ids].double() - highest[:, group.edge_rows, 0]
            return wanted / self._policy.temperature - whole[:, group.edge_rows]
        slots, edges = len(logits), len(group.edge_ids)
        rows = logits[:, group.edge_rows].flatten(0, 1)
        tokens = group.edge_ids.repeat(slots)
        return score_tokens(rows, tokens, [self._policy]).log_probs[0].reshape(slots, edges)

    def _node_batch(self, group: TrieGroup, prefixes: Sequence[Sequence[int]]) -> TreeBatch:
        """The group's nodes for every slot, at the entries behind the longest prefix, over an earlier group's.

        Built on the device, where the group's mask is: `pack` would send it with every batch.
        """
        device, slots, nodes = self._model.device, len(prefixes), group.nodes
        lengths = torch.tensor([len(prefix) for prefix in prefixes], device=device)
        longest = int(lengths.max())
        order = torch.arange(longest, device=device)
        lanes = torch.arange(nodes, device=device)
        depths = lengths[:, None] + group.node_depths  # [slots, nodes]: position in the sequence
        sees_prefix = (order < lengths[:, None])[:, None].expand(slots, nodes, longest)
        return TreeBatch(
            token_ids=group.node_ids.repeat(slots),
            positions=depths.flatten(),
            slots=torch.arange(slots, device=device).repeat_interleave(nodes),
            entries=(longest + lanes).repeat(slots),
            lanes=lanes.repeat(slots),
            ancestry=torch.cat([sees_prefix, group.ancestry.expand(slots, nodes, nodes)], -1),
            entry_positions=torch.cat([order.expand(slots, longest), depths], -1),
            beam_counts=(nodes,) * slots,
            prefix_lengths=(),
            outputs=torch.arange(slots * nodes, device=device),
        )


def build_group(suffix_places: Sequence[int], distinct: Sequence[tuple[int, ...]], device: torch.device) -> TrieGroup:
    """The trie of the suffixes at `suffix_places`: every beginning of a suffix is an edge; one that goes on, a node."""
    suffixes = [distinct[place] for place in suffix_places]
    beginnings = dict.fromkeys(suffix[:length] for suffix in suffixes for length in range(1, len(suffix) + 1))
    edge_of = {beginning: edge for edge, beginning in enumerate(beginnings)}
    inner = dict.fromkeys(suffix[:length] for suffix in suffixes for length in range(1, len(suffix)))
    node_of = {beginning: node for node, beginning in enumerate(inner)}
    ancestry = torch.zeros(len(inner), len(inner), dtype=torch.bool)
    for beginning, node in node_of.items():
        ancestry[node, [node_of[beginning[:length]] for length in range(1, len(beginning) + 1)]] = True
    paths = torch.zeros(len(suffixes), len(beginnings), dtype=torch.float64)
    for row, suffix in enumerate(suffixes):
        paths[row, [edge_of[suffix[:length]] for length in range(1, len(suffix) + 1)]] = 1.0
    rows = [0 if len(beginning) == 1 else node_of[beginning[:-1]] + 1 for beginning in beginnings]
    return TrieGroup(
        suffixes=tuple(suffix_places),
        node_ids=torch.tensor([beginning[-1] for beginning in inner], dtype=torch.int64, device=device),
        node_depths=torch.tensor([len(beginning) - 1 for beginning in inner], dtype=torch.int64, device=device),
        ancestry=ancestry.to(device),
        edge_rows=torch.tensor(rows, device=device),
        edge_ids=torch.tensor([beginning[-1] for beginning in beginnings], device=device),
        paths=paths.to(device),
    )


def _grouped(distinct: Sequence[tuple[int, ...]], capacity: int) -> Iterator[list[int]]:
    """Neighbours in lexicographic order (they share most): one suffix or more, at most `capacity` inner nodes."""
    group: list[int] = []
    inner: set[tuple[int, ...]] = set()
    for place, suffix in enumerate(distinct):
        own = {suffix[:length] for length in range(1, len(suffix))}
        if group and len(inner | own) > capacity:
            yield group
            group, inner = [], set()
        group.append(place)
        inner |= own
    yield group
