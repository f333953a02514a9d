"""`evalkit data show` and `evalkit data prepare`."""

import pytest
from typer.testing import CliRunner

from evalkit.cli.main import app
from evalkit.core.errors import EvalkitError
from evalkit.data import cards


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EVALKIT_OFFLINE", "1")
    for name in ("EVALKIT_DATA", "EVALKIT_WHEELS"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments):
    return CliRunner().invoke(app, ["data", *arguments], catch_exceptions=False)


def test_show_lists_every_card_with_what_it_pins(offline):
    printed = run("show").stdout
    for name, card in cards.load_all().items():
        assert f"{name}: {card.pretty_name}" in printed
        assert f"licence {card.license}" in printed
        for source in card.sources:
            revision = source.version if source.kind == "wheel" else source.revision
            assert source.sha256 in printed
            assert revision in printed
    assert "data.zip: absent" in printed
    assert "uses the files of ruler" in printed


@pytest.mark.parametrize(
    ("asked", "shown"),
    [("qasper", "longbench"), ("needle_kamradt", "needle"), ("ruler/vt", "ruler")],
)
def test_a_task_leads_to_its_data_set(offline, asked, shown):
    assert run("show", asked).stdout.startswith(f"{shown}: ")


def test_a_generated_set_needs_nothing_and_an_unknown_one_is_named(offline):
    assert run("prepare", "graphwalk", "tiny_text").stdout == (
        "graphwalk: generated, nothing to fetch\ntiny_text: generated, nothing to fetch\n"
    )
    with pytest.raises(EvalkitError, match=r"unknown data set graphwlak; did you mean graphwalk\?"):
        run("prepare", "graphwlak")


def test_files_of_a_folder_are_checked(offline, tmp_path):
    (tmp_path / "data.zip").write_bytes(b"PK")
    with pytest.raises(EvalkitError, match=r"data\.zip: refused, sha256 .*, expected cb45b11a"):
        run("prepare", "longbench", "--from", str(tmp_path))
    assert not list((tmp_path / "cache").glob("*"))
