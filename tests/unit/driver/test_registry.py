# SPDX-License-Identifier: Apache-2.0
"""How drivers are found and made (reference/driver 0)."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodepool.driver.registry import KNOWN, PATH_VARIABLE, Drivers, DriverUnavailable, LibraryMissing, missing_members
from nodepool.version import how_to_install

GOOD = """
from nodepool.driver import Driver
{extra}
class Good(Driver):
    name = {name!r}
    def getProviderConfig(self, provider): return provider
    def getProvider(self, provider_config): return provider_config
"""
STATIC = "nodepool.driver.static"


def good(name: str, extra: str = "") -> str:
    return GOOD.format(name=name, extra=extra)


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Adds a driver, and loads the directories of all. There are only built-in drivers afterwards."""

    def add(name: str, text: str, part: str | None = None, directory: str = "drivers") -> Path:
        package = tmp_path / directory / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text, encoding="utf-8")
        if part is not None:
            (package / "part.py").write_text(part, encoding="utf-8")
        # The same list again would do nothing.
        Drivers.load()
        Drivers.load([str(each) for each in sorted(tmp_path.iterdir())])
        return package

    own = {name: module for name, module in sys.modules.items() if name.startswith(STATIC)}
    yield add
    Drivers.load()
    for name in [name for name in sys.modules if name.startswith(STATIC)]:
        del sys.modules[name]
    # Other tests have imported its classes.
    sys.modules.update(own)


def test_builtin() -> None:
    """Built-in drivers are there without `load`; shared packages among them are no drivers. One instance of each."""
    assert "static" in Drivers.names()
    assert "statemachine" not in Drivers.names()
    assert Drivers.get("static") is Drivers.get("static")
    assert Drivers.get("static").name == "static"
    assert missing_members(type(Drivers.get("static"))) == []
    # reference/configuration 5: the drivers that configurations of the released Nodepool name.
    names = "aws azure gce ibmvpc kubernetes metastatic openshift openshiftpods openstack static"
    assert sorted(KNOWN) == names.split()
    with pytest.raises(RuntimeError, match=r"no driver 'nope'.*static"):
        Drivers.get("nope")


def test_extra_directories(write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They come before the built-in one, the first wins, and what is hidden or missing is logged. Each is read once."""
    (tmp_path / "file.py").write_text("", encoding="utf-8")
    write("static", good("first"), directory="1")
    write("static", good("second"), directory="2")
    mine = write("mine", good(""), directory="3")
    (mine.parent / "not_a_package").mkdir()
    caplog.clear()
    paths = [str(tmp_path / name) for name in ("1", "2", "3", "nowhere")]
    Drivers.load(paths)
    assert [record.levelno for record in caplog.records].count(logging.WARNING) >= 2
    assert "nowhere" in caplog.text
    driver = Drivers.get("mine")
    assert (Drivers.get("static").name, driver.name, "not_a_package" in Drivers.names()) == ("first", "mine", False)
    (mine.parent / "late").mkdir()
    (mine.parent / "late" / "__init__.py").write_text(good("late"), encoding="utf-8")
    Drivers.load(paths)
    assert ("late" in Drivers.names(), Drivers.get("mine") is driver) == (False, True)


def run(code: str, tmp_path: Path | None = None, **environment: str) -> str:
    """What a new process prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-c", f"import os, sys; from {Drivers.__module__} import Drivers; {code}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_new_process(write: Write, tmp_path: Path) -> None:
    """Directories of the environment are found although the process changes its own. Nothing is imported too early."""
    write("mine", good("mine"), directory="one")
    write("yours", good("yours"), directory="two")
    code = "Drivers.names(); os.chdir('/'); print(*(Drivers.get(name).name for name in ('mine', 'yours', 'static')))"
    assert run(code, tmp_path, **{PATH_VARIABLE: "one:two"}).split() == ["mine", "yours", "static"]
    loaded = "any(name.startswith(('nodepool.driver.static', 'nodepool.driver.fake')) for name in sys.modules)"
    assert run(f"Drivers.load(); assert Drivers.names(); print({loaded})").split() == ["False"]
    libraries = "{name.partition('.')[0] for name in sys.modules} & {*Drivers.get('openstack').libraries}"
    assert run(f"print(len({libraries}))").split() == ["0"]


def test_installed_distribution(tmp_path: Path) -> None:
    """An entry point names a driver, which is imported as its own package. Built-in ones and directories come first."""
    for name in ("cloud", "own"):
        (tmp_path / f"acme_{name}").mkdir()
        (tmp_path / f"acme_{name}" / "__init__.py").write_text(good(name, "from . import part"), encoding="utf-8")
        (tmp_path / f"acme_{name}" / "part.py").write_text("", encoding="utf-8")
    metadata = tmp_path / "acme-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.5\n", encoding="utf-8")
    points = "acme = acme_cloud\nstatic = acme_cloud\nlost = acme_lost\nown = acme_own\n"
    (metadata / "entry_points.txt").write_text(f"[nodepool.drivers]\n{points}", encoding="utf-8")
    other = tmp_path / "drivers" / "own"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text(good("mine"), encoding="utf-8")
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), PATH_VARIABLE: str(other.parent)}
    code = (
        "import logging; logging.basicConfig(stream=sys.stdout, format='%(message)s'); Drivers.names(); "
        "print(any(name.startswith('acme') for name in sys.modules)); "
        "print(*(f'{type(made).__module__}:{made.name}' for made in map(Drivers.get, ('acme', 'static', 'own'))))"
    )
    *logged, early, made = run(code, None, **path).splitlines()
    assert sorted(line.partition(" in /")[0] for line in logged) == [
        "Driver lost is left out: there is no package acme_lost",
        "Driver own",
        "Driver static",
    ]
    assert early == "False"
    assert made == "acme_cloud:cloud nodepool.driver.static:static nodepool.driver.own:mine"
    shown = run("from nodepool.cmd.cli import main; main(['--version'])", None, **path).splitlines()
    assert shown[1:] == [f"Driver {name} of acme 1.5" for name in ("acme", "lost", "own", "static")]


@pytest.mark.parametrize("broken", [False, True])
def test_hidden_builtin(write: Write, broken: bool) -> None:
    """One that hides a built-in driver meets none of its modules."""
    importlib.import_module(f"{STATIC}.config")
    write(
        "static", "raise KeyError" if broken else good("x", f"import sys\nassert '{STATIC}.config' not in sys.modules")
    )
    if broken:
        with pytest.raises(DriverUnavailable, match="KeyError"):
            Drivers.get("static")
    else:
        assert type(Drivers.get("static")).__name__ == "Good"


@pytest.mark.parametrize("name", ["framework", "statemachine", "utils", "config"])
def test_taken_names(write: Write, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A driver must not take the place of a module of `nodepool.driver`."""
    write(name, good(name))
    assert name not in Drivers.names()
    assert f"no driver can have the name {name}" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "exactly one subclass of Driver, found: none"),
        ("from nodepool.driver.static import StaticDriver", "found: none"),
        (good("a") + good("b").replace("Good", "Other"), "found: Good, Other"),
        ("import no_such_library", "no_such_library"),
        ("def x(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("from nodepool.driver import Driver\nclass D(Driver): pass", "getProvider, getProviderConfig"),
        (good("a") + "    def __init__(self): raise ValueError('bad day')", "bad day"),
        (good("a") + "    def __init__(self): raise SystemExit(3)", "SystemExit: 3"),
        ("from nodepool.driver.mine.part import Missing\n" + good("mine"), "Missing"),
    ],
)
def test_broken(write: Write, text: str, expected: str) -> None:
    """Whatever is wrong with it is one line that names it; others work. What is mended is read anew."""
    package = write("mine", text, "class Other: pass\n")
    with pytest.raises(DriverUnavailable) as caught:
        Drivers.get("mine")
    (line,) = str(caught.value).splitlines()
    assert expected in line
    assert "mine" in line
    assert Drivers.get("static").name == "static"
    (package / "part.py").write_text("class Missing:\n    pass\n", encoding="utf-8")
    if expected != "Missing":
        (package / "__init__.py").write_text(good("mine"), encoding="utf-8")
    assert Drivers.get("mine").name == "mine"


@pytest.mark.parametrize(
    ("driver", "module", "text"),
    [("openstack", "openstack", "openstack"), ("gce", "google", "google.auth"), ("gce", "google.auth", "google.auth")],
)
def test_missing_library(monkeypatch: pytest.MonkeyPatch, driver: str, module: str, text: str) -> None:
    """The text names the extra of Nodepool that brings it. Other libraries bring the package ``google``, too."""
    monkeypatch.delitem(sys.modules, "google.auth", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    # It may be there already: drivers of a process are kept.
    monkeypatch.setattr(Drivers, "_drivers", {})
    with pytest.raises(LibraryMissing) as caught:
        Drivers.get(driver)
    assert f"'{driver}' needs what is not installed (No module named '{text}')" in str(caught.value)
    assert str(caught.value).endswith(how_to_install(driver))
