"""Files of the hub and of repositories: fetched once, checked, locked; no network is used."""

import hashlib
import json
import os
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.data import cache, fetch, sources
from evalkit.data.cache import cache_dir
from evalkit.data.pins import Remote
from evalkit.data.sources import locate, prepare, show

TEXT = b'{"tide": "{context}"}'
COMMIT = "1" * 40


def pin(kind="raw", data=TEXT, path="a/tide.json"):
    """A pinned file; `data` None has no known checksum."""
    digest = None if data is None else hashlib.sha256(data).hexdigest()
    return Remote(kind, "lamp/harbour", path, COMMIT, digest)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An empty cache, and a folder that plays the repository."""
    monkeypatch.setenv("EVALKIT_CACHE", str(tmp_path / "cache"))
    for name in ("EVALKIT_OFFLINE", "EVALKIT_DATA"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "site"
    (folder / "lamp" / "harbour" / COMMIT / "a").mkdir(parents=True)
    monkeypatch.setattr(fetch, "RAW", folder.as_uri())
    return folder / "lamp" / "harbour" / COMMIT


@pytest.fixture
def hub(monkeypatch):
    """The hub: files by name, and the calls it got."""
    import huggingface_hub

    files, calls = {}, []

    def download(*, repo_id, filename, repo_type, revision, local_dir):
        calls.append((repo_id, filename, repo_type, revision))
        if filename not in files:
            raise ConnectionError("no such host\nmore lines")
        path = Path(local_dir) / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[filename])
        return str(path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return files, calls


def cached():
    """Names in the cache."""
    return sorted(path.name for path in cache_dir().iterdir()) if cache_dir().exists() else []


def test_a_raw_file_is_fetched_once(site):
    (site / "a" / "tide.json").write_bytes(TEXT)
    path = locate(pin())
    assert path.read_bytes() == TEXT
    (site / "a" / "tide.json").unlink()
    assert locate(pin()) == path
    assert cached() == ["lamp--harbour--111111111111--tide.json"]


def test_a_hub_file_is_fetched_at_its_revision_and_no_script_is_asked_for(site, hub):
    files, calls = hub
    files["a/tide.json"] = TEXT
    assert locate(pin("hub")).read_bytes() == TEXT
    assert locate(pin("hub")).read_bytes() == TEXT
    assert calls == [("lamp/harbour", "a/tide.json", "dataset", COMMIT)]


@pytest.mark.parametrize("kind", ["raw", "hub"])
def test_what_is_not_the_pinned_file_is_refused_and_the_cache_stays_clean(site, hub, kind):
    (site / "a" / "tide.json").write_bytes(TEXT[:-3])
    hub[0]["a/tide.json"] = TEXT[:-3]
    with pytest.raises(EvalkitError, match=r"refused, sha256 \w+, expected \w+$") as error:
        locate(pin(kind))
    assert "\n" not in str(error.value)
    assert cached() == []


@pytest.mark.parametrize("kind", ["raw", "hub"])
def test_a_failed_download_is_one_line_that_says_where_to_put_the_file(site, hub, kind):
    with pytest.raises(EvalkitError, match="could not be fetched") as error:
        locate(pin(kind))
    assert "\n" not in str(error.value)
    assert str(cache_dir() / pin().cached) in str(error.value)
    assert cached() == []


def test_half_a_download_is_noticed_before_its_checksum(site, monkeypatch):
    class Answer:
        def __init__(self):
            self.headers = {"Content-Length": "500"}

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def read(self, _):
            return TEXT

    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Answer())
    with pytest.raises(EvalkitError, match=f"incomplete: {len(TEXT)} of 500 bytes"):
        locate(pin())
    monkeypatch.setattr(fetch, "RAW_BYTES", 5)
    with pytest.raises(EvalkitError, match="more than 5 bytes"):
        locate(pin())
    assert cached() == []


def test_a_broken_connection_is_one_line(site, monkeypatch):
    def broken(*_, **__):
        raise urllib.error.URLError("timed out")

    monkeypatch.setattr(urllib.request, "urlopen", broken)
    with pytest.raises(EvalkitError, match="timed out"):
        locate(pin())


def test_without_a_known_checksum_the_first_download_is_recorded_and_enforced(site):
    source = pin(data=None)
    (site / "a" / "tide.json").write_bytes(TEXT)
    path = locate(source)
    lock = json.loads((cache_dir() / cache.LOCK).read_text())
    assert list(lock.values()) == [hashlib.sha256(TEXT).hexdigest()]
    path.unlink()
    (site / "a" / "tide.json").write_bytes(b'{"other": 1}')
    with pytest.raises(EvalkitError, match="refused, sha256"):
        locate(source)
    path.write_bytes(b'{"other": 1}')
    with pytest.raises(EvalkitError, match="refused"):
        locate(source)  # the cached file is not believed either, the fresh one is refused
    (site / "a" / "tide.json").write_bytes(TEXT)
    assert locate(source).read_bytes() == TEXT


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a/tide.json", b"<html>not found</html>", "no whole JSON file"),
        ("a/tide.json", b'[{"cut": 1', "no whole JSON file"),
        ("a/tide.zip", b"PK but not really", "no zip archive"),
        ("a/tide.txt", b"<!DOCTYPE html><title>404</title>", "a web page"),
        ("a/tide.txt", b" \n", "empty"),
    ],
)
def test_a_first_download_must_be_what_its_name_says(site, name, data, reason):
    (site / name).write_bytes(data)
    with pytest.raises(EvalkitError, match=reason):
        locate(pin(data=None, path=name))
    assert cached() == []


@pytest.mark.parametrize("content", ["[1]", "no json", '{"a": 1}'])
def test_a_damaged_lock_is_named(site, content):
    cache_dir().mkdir()
    (cache_dir() / cache.LOCK).write_text(content)
    with pytest.raises(EvalkitError, match=f"{cache.LOCK}: damaged"):
        locate(pin(data=None))


def test_offline_says_what_to_put_where(site, monkeypatch):
    monkeypatch.setenv("EVALKIT_OFFLINE", "1")
    with pytest.raises(EvalkitError, match="is absent and EVALKIT_OFFLINE is set") as error:
        locate(pin())
    for part in (pin().sha256, COMMIT, "EVALKIT_DATA", str(cache_dir() / pin().cached)):
        assert part in str(error.value)


@pytest.mark.parametrize("folder", [True, False])
def test_a_file_the_user_names_comes_first(site, tmp_path, monkeypatch, folder):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "tide.json").write_bytes(TEXT)
    named = mine if folder else mine / "tide.json"
    monkeypatch.setenv("EVALKIT_DATA", f"{tmp_path / 'none'}{os.pathsep}{named}")
    assert locate(pin()) == mine / "tide.json"
    with pytest.raises(EvalkitError, match="wrong sha256, expected"):
        locate(pin(data=b"other"))
    assert locate(pin(data=None)) == mine / "tide.json"
    (mine / "tide.json").write_bytes(b"{}")
    with pytest.raises(EvalkitError, match="wrong sha256"):
        locate(pin(data=None))


def test_show_lists_every_source_and_fetches_nothing(site, monkeypatch, tmp_path):
    rows = {(row.name, row.file): row for row in show()}
    data = rows["longbench", "data.zip"]
    assert (data.state, data.bytes, data.license) == ("absent", 0, "mit")
    assert data.sha256 == sources.of_card("longbench", "data").sha256
    assert {"data.json", "0shot.txt"} <= {row.file for row in show() if row.name == "longbench_v2"}
    (tmp_path / "data.zip").write_bytes(b"PK")
    monkeypatch.setenv("EVALKIT_DATA", str(tmp_path))
    rows = {(row.name, row.file): row for row in show()}
    assert rows["longbench", "data.zip"].state == "wrong sha256"
    assert cached() == []


def test_prepare_fetches_all_sources_of_a_card(site, hub, monkeypatch):
    known = {"data": ("hub", b"PK"), "prompts": ("raw", b"{}"), "lengths": ("raw", b"{ }")}
    pins = tuple(pin(kind, data, f"a/{name}.json") for name, (kind, data) in known.items())
    hub[0]["a/data.json"] = b"PK"
    for name in ("prompts", "lengths"):
        (site / "a" / f"{name}.json").write_bytes(known[name][1])
    monkeypatch.setattr(sources, "_sources", lambda name: pins)
    first, *_ = prepare(["longbench"])["longbench"]
    assert first.name.endswith("data.json")
    assert len(cached()) == 3


def test_prepare_knows_the_carded_data_sets():
    with pytest.raises(EvalkitError, match=r"unknown data set longbensh; did you mean longbench"):
        prepare(["longbensh"])


def test_air_gapped_files_are_checked_and_copied(site, hub, monkeypatch, tmp_path):
    known = {"data.json": pin("hub", b"[]", "a/data.json"), "tide.json": pin(data=None)}
    monkeypatch.setattr(sources, "_sources", lambda name: tuple(known.values()))
    monkeypatch.setattr(fetch, "raw_file", lambda *_: pytest.fail("fetched"))
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "data.json").write_bytes(b"[]")
    with pytest.raises(EvalkitError, match=r"disk: has no tide.json \(GitHub lamp/harbour"):
        prepare(["longbench"], disk)
    (disk / "tide.json").write_bytes(TEXT)
    found = prepare(["longbench"], disk)["longbench"]
    assert [path.read_bytes() for path in found] == [b"[]", TEXT]
    assert found[0].parent == cache_dir()
    assert (disk / "data.json").is_file()
    (disk / "data.json").write_bytes(b"[1]")
    with pytest.raises(EvalkitError, match=r"data.json from .*disk.*: refused, sha256 "):
        prepare(["longbench"], disk)
    assert found[0].read_bytes() == b"[]"
    assert not [name for name in cached() if name.startswith("fetch-")]


def test_an_archive_with_a_member_that_points_outside_is_refused(tmp_path):
    from evalkit.data import archive

    for member in ("../evil.jsonl", "/etc/passwd", "data/..\\evil"):
        path = tmp_path / "data.zip"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("data/lcc.jsonl", "{}")
            file.writestr(member, "{}")
        with (
            pytest.raises(EvalkitError, match="points outside the archive"),
            archive.member(path, ("data/lcc.jsonl",)),
        ):
            pass
