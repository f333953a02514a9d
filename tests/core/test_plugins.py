"""Records of other packages: found by their metadata, imported when asked for, faults named."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from evalkit.config.engine import ENGINES
from evalkit.core.console import run_command
from evalkit.core.errors import EvalkitError
from evalkit.core.plugins import OURS, Registry, fault, load_plugins, running
from evalkit.core.provenance import with_guests
from evalkit.exporters import FORMATS as EXPORTS
from evalkit.importers import FORMATS as IMPORTS
from evalkit.report.panels import PANELS
from evalkit.scorers import METRICS
from evalkit.stats.methods import METHODS
from evalkit.tasks.registry import TASKS
from tests import guests
from tests.paths import ROOT

GROUP = "evalkit.metals"
METALS = """
from tests.core.test_plugins import Metal
GOLD = Metal(79)
WRONG = 79
def broken(): return 1 / 0
"""


@dataclass(frozen=True)
class Metal:
    number: int


IRON = Metal(26)
TWO = "not a metal"
OWN = {"iron": "tests.core.test_plugins:IRON", "bad": "tests.core.test_plugins:TWO"}


@pytest.fixture
def metals():
    return Registry("metal", Metal, OWN, GROUP)


@pytest.fixture
def install(tmp_path):
    """Install packages for the rest of a test: entry points of one group by package."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def add(name, entries, modules=None, group=GROUP):
            folder = tmp_path / name
            top = name.replace("-", "_")
            modules = {f"{top}.py": METALS} if modules is None else modules
            guests.write(folder, name, modules, {group: entries})
            stack.enter_context(guests.installed(folder))

        yield add


REGISTRIES = {
    "evalkit.tasks": TASKS,
    "evalkit.scorers": METRICS,
    "evalkit.engines": ENGINES,
    "evalkit.importers": IMPORTS,
    "export": EXPORTS,
    "interval": METHODS,
    "panel": PANELS,
}


@pytest.mark.parametrize("name", REGISTRIES)
def test_every_line_of_a_registry_leads_to_a_record_of_its_own(name):
    registry = REGISTRIES[name]
    records = list(registry.usable())
    assert len(records) == len(registry.builtin) == len(set(map(id, records)))
    assert registry.group == (name if "." in name else None)


def test_ours_need_no_other_package(metals):
    assert list(metals) == ["iron", "bad"]
    assert metals["iron"] is IRON
    assert "iron" in metals
    assert metals.packages(["iron"]) == {}


def test_a_package_adds_a_record(metals, install):
    install("acme-metals", {"gold": "acme_metals:GOLD"})
    assert list(metals) == ["iron", "bad", "gold"]
    assert len(metals) == 3
    assert metals["gold"].number == 79
    assert metals.packages(["iron", "gold"]) == {"acme-metals": "1.0"}
    assert load_plugins(GROUP)["gold"].package == "acme-metals 1.0"


def test_nothing_is_imported_before_it_is_asked_for(metals, install):
    install("acme-metals", {"gold": "acme_metals:GOLD", "lead": "nowhere:LEAD"})
    assert set(metals) == {"iron", "bad", "gold", "lead"}
    assert "lead" in metals
    assert metals["iron"] is IRON
    assert "acme_metals" not in sys.modules


def test_registries_without_a_group_take_ours_only(install):
    install("acme-metals", {"gold": "acme_metals:GOLD"})
    assert list(Registry("metal", Metal, OWN)) == ["iron", "bad"]


def test_an_unknown_name_has_a_hint(metals, install):
    install("acme-metals", {"gold": "acme_metals:GOLD"})
    with pytest.raises(EvalkitError, match=r"^unknown metal golt; did you mean gold\?$"):
        metals["golt"]
    with pytest.raises(EvalkitError, match=r"^unknown metal xyz; known: iron, bad, gold$"):
        metals["xyz"]


@pytest.mark.parametrize(
    ("entry", "source", "words"),
    [
        ("acme_metals:GOLD", "import nothing_of_that_name", "No module named 'nothing_of_that_nam"),
        ("acme_metals:GOLD", "raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("acme_metals:GOLD", "import sys; sys.exit(3)", "SystemExit: 3"),
        ("acme_metals:GOLD", "GOLD = (", "SyntaxError"),
        ("acme_metals:LEAD", METALS, "has no attribute 'LEAD'"),
        ("acme metals", METALS, "cannot be imported"),
        ("acme_metals:WRONG", METALS, "the metal gold is of the type int, not Metal"),
    ],
)
def test_a_record_that_cannot_be_had_is_one_line_with_the_package(
    metals, install, entry, source, words
):
    install("acme-metals", {"gold": entry}, {"acme_metals.py": source})
    with pytest.raises(EvalkitError) as error:
        metals["gold"]
    assert str(error.value).startswith("acme-metals 1.0: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert metals["iron"] is IRON


def test_a_name_of_ours_is_refused_with_the_package(metals, install):
    install("acme-metals", {"iron": "acme_metals:GOLD"})
    with pytest.raises(EvalkitError, match=r"^acme-metals 1.0: adds the metal iron, which is one"):
        metals["iron"]
    assert list(metals) == ["iron", "bad"]


def test_one_name_of_two_packages_is_refused_with_both(metals, install):
    install("acme-metals", {"gold": "acme_metals:GOLD", "tin": "acme_metals:GOLD"})
    install("base-metals", {"gold": "base_metals:GOLD"})
    with pytest.raises(EvalkitError) as error:
        metals["gold"]
    assert "acme-metals 1.0" in str(error.value)
    assert "base-metals 1.0" in str(error.value)
    assert "\n" not in str(error.value)
    assert metals["tin"].number == 79


def test_our_own_record_of_a_wrong_type_is_told(metals):
    with pytest.raises(EvalkitError, match="evalkit: the metal bad is of the type str, not Metal"):
        metals["bad"]


def test_an_error_in_another_package_ends_in_one_line(install, capsys):
    install("acme-metals", {"gold": "acme_metals:GOLD"})
    from acme_metals import broken

    with pytest.raises(SystemExit) as end:
        run_command("evalkit", broken)
    assert end.value.code == 2
    line = "evalkit: acme-metals 1.0: acme_metals, line 5: ZeroDivisionError: division by zero\n"
    assert capsys.readouterr().err == line


def test_an_error_of_ours_is_not_laid_at_their_door(install):
    install("acme-metals", {"gold": "acme_metals:GOLD"})
    with pytest.raises(ZeroDivisionError) as error:
        run_command("evalkit", lambda: 1 / 0)
    assert fault(error.value) is None


def test_an_error_without_a_frame_of_theirs_is_laid_at_the_package_that_runs():
    with pytest.raises(EvalkitError, match=r"^acme 1.0: TypeError: len"):
        with running("acme 1.0"):
            len(1, 2)
    with pytest.raises(EvalkitError, match=r"^said by the package itself$"):
        with running("acme 1.0"):
            raise EvalkitError("said by the package itself")
    with pytest.raises(KeyError):
        with running(OURS):
            {}["x"]


def test_a_run_names_the_packages_of_all_its_parts():
    ordinary = {"python": "3", "packages": {"numpy": "2"}}
    assert with_guests(ordinary, {}) == ordinary
    once = with_guests(ordinary, {"acme": "1.0"})
    assert once == {**ordinary, "guests": {"acme": "1.0"}}
    assert with_guests(ordinary, {"base": "2.0"}, before=once)["guests"] == {
        "acme": "1.0",
        "base": "2.0",
    }


def test_packages_are_looked_for_when_needed_only():
    code = (
        "import importlib.metadata, sys\n"
        "def no(*a, **k): raise AssertionError(a)\n"
        "importlib.metadata.entry_points = no\n"
        "import evalkit.cli.main\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
