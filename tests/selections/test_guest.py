"""A way to select from another package, and faults in one."""

from __future__ import annotations

import pytest
import torch

from evalkit.config.arm import ArmConfig
from evalkit.config.selection import SELECTIONS
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.dsa import select
from tests import guests
from tests.selections.reference import random_features

WINDOW = """
from typing import Literal

import torch

from evalkit.config.selection import Selection, SelectionKind
from evalkit.dsa.features import at_rows
from evalkit.dsa.scores import index_scores, keys_seen


class Window(Selection):
    kind: Literal["window"] = "window"
    last: int

    def scores(self, features, rows):
        features = at_rows(features, rows)
        scores, number = index_scores(features), torch.arange(features.key.shape[1])
        old = number < keys_seen(features, features.positions).unsqueeze(-1) - self.last
        return scores.masked_fill(old & (number > 0), float("-inf"))

    def products(self, keys, heads):
        return heads * min(keys, self.last + 1)


KIND = SelectionKind(config=Window)
"""
BROKEN = """
from typing import Literal

from evalkit.config.selection import SelectionKind
from evalkit.core.recipe import Strict


class Empty(Strict):
    kind: Literal["empty"] = "empty"


KIND = SelectionKind(config=Empty)
"""


def test_a_package_adds_a_way_to_select(tmp_path):
    modules = {"windows/__init__.py": "", "windows/last.py": WINDOW, "windows/bad.py": BROKEN}
    entries = {"window": "windows.last:KIND", "empty": "windows.bad:KIND"}
    folder = guests.write(tmp_path, "windows", modules, {"evalkit.selections": entries}, "2.1")
    with guests.installed(folder):
        section = {"kind": "window", "last": 5}
        arm = parse({"name": "local", "selection": section}, ArmConfig, "arm")
        assert arm.selection.text == "window last=5"
        assert SELECTIONS.packages(["window"]) == {"windows": "2.1"}
        features = random_features(30)
        chosen = select(features, 10, policy=arm.selection)[0, 20]
        assert sorted(i for i in chosen.tolist() if i >= 0) == [0, 16, 17, 18, 19, 20]
        assert torch.equal(chosen[:1], select(features, 1, policy=arm.selection)[0, 20])
        with pytest.raises(EvalkitError, match=r"windows 2\.1: .* must be a subclass of .*Sel"):
            parse({"name": "x", "selection": {"kind": "empty"}}, ArmConfig, "arm")
    with pytest.raises(EvalkitError, match="unknown kind of selection window"):
        parse({"name": "local", "selection": section}, ArmConfig, "arm")
