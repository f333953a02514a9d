"""Files that are written whole, and who may read them."""

from __future__ import annotations

import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from evalkit.dsa.files import follow_umask, replacing


@pytest.fixture(params=[0o022, 0o027, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_files_follow_the_umask(umask, tmp_path):
    path = tmp_path / "a" / "model.safetensors"
    for value in (1.0, 2.0):  # a new file, and one in the place of another
        with replacing(path) as temporary:
            save_file({"x": torch.full((2,), value)}, temporary)
        assert path.stat().st_mode & 0o777 == 0o666 & ~umask
        assert load_file(path)["x"].tolist() == [value, value]
    save_file({"x": torch.zeros(2)}, tmp_path / "b.safetensors")
    follow_umask(tmp_path)
    assert (tmp_path / "b.safetensors").stat().st_mode & 0o777 == 0o666 & ~umask
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b.safetensors"]


def test_after_an_error_the_old_file_stays(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("new")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
