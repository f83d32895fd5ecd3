"""Whole works: nv-recall of a generated text, and the two-phase audit that obtains one."""

from rote.longform.blocks import Block, matching_blocks
from rote.longform.merge_blocks import PUBLISHED_PASSES, MergePass
from rote.longform.recall import Placement, RecallBlock, RecallResult, nv_recall

__all__ = [
    "PUBLISHED_PASSES",
    "Block",
    "MergePass",
    "Placement",
    "RecallBlock",
    "RecallResult",
    "matching_blocks",
    "nv_recall",
]
