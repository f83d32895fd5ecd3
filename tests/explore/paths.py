"""Nodes of a tree by the tokens that lead to them, for tests that think in paths."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from byrote.explore.ball import Ball
from byrote.explore.base import Exploration, NodeAnswer, NodeRequest
from byrote.explore.tree import Tree

Path = tuple[int, ...]


class PathTree:
    """A tree that grows as paths are named."""

    def __init__(self, length: int = 6, tree: Tree | None = None) -> None:
        self.tree = tree or Tree(Ball((0,) * length, distance="levenshtein", budget=3))
        self._known = {self.tree.path(node): node for node in range(self.tree.size)}

    def node(self, path: Path) -> int:
        if path not in self._known:
            parent = np.array([self.node(path[:-1])])
            least = np.zeros(1, dtype=np.int16)
            (node,) = self.tree.add(parent, np.array([path[-1]]), log_p=np.nan, least=least, is_open=False)
            self._known[path] = int(node)
        return self._known[path]

    def nodes(self, paths: Sequence[Path]) -> NDArray[np.int64]:
        return np.array([self.node(path) for path in paths], dtype=np.int64)

    def ask(self, asked: Sequence[tuple[Sequence[Path], int | None]]) -> Exploration[list[NodeAnswer]]:
        """One request after the other, each with its paths and the evaluations it may cost."""
        answers = []
        for paths, most_evals in asked:
            answers.append((yield NodeRequest(self.tree, self.nodes(paths), most_evals)))
        return answers


def ask(*asked: Sequence[Path], length: int = 6) -> Exploration[list[NodeAnswer]]:
    return PathTree(length).ask([(paths, None) for paths in asked])
