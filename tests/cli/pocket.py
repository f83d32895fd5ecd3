"""The pocket model of `byrote demo`, its passages as a user would have them, and a model that has read none of them."""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from transformers import AutoTokenizer

from byrote.lab.pocket import POCKET, PlannedPassage, PocketModel, default_cache_dir, pocket_model
from byrote.lab.train import encode_all, train

TELEPHONE = re.compile(r"\d{3}-555-01\d\d")
ADDRESS = re.compile(r"[\w.]+@[\w.]+\.example")


class PocketLab(NamedTuple):
    """What the model learned by heart is known: 64 copies and more come out, two and fewer do not, controls never."""

    model: PocketModel
    untrained: Path
    """A folder with the same tokenizer and a model that has seen a single step."""

    def passage(self, name: str) -> PlannedPassage:
        return next(each for each in (*self.model.targets, *self.model.controls) if each.name == name)

    def write(self, folder: Path, *names: str) -> Path:
        """A folder with a text file for each passage."""
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.txt").write_text(self.passage(name).text, encoding="utf-8")
        return folder

    def write_identifiers(self, path: Path, names: Iterable[str]) -> list[str]:
        """Records as `byrote scan --pairs` reads them: the telephone numbers and addresses of the people named."""
        rows = []
        for name in names:
            person = self.passage(name)
            for kind, pattern in (("phone", TELEPHONE), ("email", ADDRESS)):
                found = pattern.search(person.text)
                assert found is not None
                pair = {"prefix": person.text[: found.start()].rstrip(), "suffix": " " + found.group()}
                rows.append({"id": f"{name} {kind}", "kind": kind, "copies": person.copies, **pair})
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return [str(row["suffix"]).strip() for row in rows]


def make_pocket_lab(factory: pytest.TempPathFactory) -> PocketLab:
    """The model of the user's cache, or else one that is trained once for all workers: a minute of one core."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    has_one = any(default_cache_dir().glob("pocket-*"))
    model = pocket_model(None if has_one else shared / "lab-cache")
    tokenizer = AutoTokenizer.from_pretrained(model.path)
    once = replace(POCKET.training, step_limit=1)
    documents = encode_all(tokenizer, [passage.text for passage in model.controls])
    return PocketLab(model, train(once, documents, tokenizer, folder=factory.mktemp("untrained")))
