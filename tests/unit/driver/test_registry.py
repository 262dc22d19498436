# SPDX-License-Identifier: Apache-2.0
"""How drivers are found and made (reference/driver 0)."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.driver.framework import checks
from nodepool.driver.registry import KNOWN, PATH_VARIABLE, Drivers, DriverUnavailable, LibraryMissing
from nodepool.version import how_to_install

GOOD = """
from nodepool.driver import Driver
{extra}
class Good(Driver):
    name = {name!r}
    def getProviderConfig(self, provider): return provider
    def getProvider(self, provider_config): return provider_config
"""


@pytest.fixture(autouse=True)
def _only_builtin_drivers_afterwards() -> Iterator[None]:
    yield
    Drivers.load()


def write(directory: Path, name: str, text: str) -> Path:
    package = directory / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text, encoding="utf-8")
    return package


def good(name: str, extra: str = "") -> str:
    return GOOD.format(name=name, extra=extra)


class TestFinding:
    def test_builtin(self) -> None:
        """Built-in drivers are there without `load`; shared packages among them are no drivers."""
        names = Drivers.names()
        assert "static" in names
        assert "statemachine" not in names
        assert Drivers.get("static").name == "static"
        assert Drivers.get("static") is Drivers.get("static")

    def test_known(self) -> None:
        """reference/configuration 5: the drivers that configurations of the released Nodepool name."""
        names = "aws azure gce ibmvpc kubernetes metastatic openshift openshiftpods openstack static"
        assert sorted(KNOWN) == names.split()

    def test_unknown(self) -> None:
        """An unknown name is a RuntimeError that lists what there is."""
        with pytest.raises(RuntimeError, match=r"no driver 'nope'.*static"):
            Drivers.get("nope")

    def test_extra_directory(self, tmp_path: Path) -> None:
        write(tmp_path, "mine", good("mine"))
        (tmp_path / "not_a_package").mkdir()
        (tmp_path / "file.py").write_text("", encoding="utf-8")
        Drivers.load([str(tmp_path)])
        assert "mine" in Drivers.names()
        assert "not_a_package" not in Drivers.names()
        assert Drivers.get("mine").name == "mine"

    def test_directories_of_the_environment(self, tmp_path: Path) -> None:
        """What the commands use; found although the process changes its directory, as a daemon does."""
        write(tmp_path / "one", "mine", good("mine"))
        write(tmp_path / "two", "yours", good("yours"))
        code = (
            "import os; from nodepool.driver.registry import Drivers; Drivers.names(); os.chdir('/');"
            "print(Drivers.get('mine').name, Drivers.get('yours').name, Drivers.get('static').name)"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), PATH_VARIABLE: "one:two"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["mine", "yours", "static"]

    def test_first_wins(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Extra directories come before the built-in one; what is hidden is logged."""
        first, second = tmp_path / "1", tmp_path / "2"
        write(first, "static", good("first"))
        write(second, "static", good("second"))
        Drivers.load([str(first), str(second)])
        assert Drivers.get("static").name == "first"
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
        Drivers.load()
        assert Drivers.get("static").name == "static"

    def test_same_paths_again(self, tmp_path: Path) -> None:
        """The same list again does nothing; one instance a process."""
        write(tmp_path, "mine", good("mine"))
        Drivers.load([str(tmp_path)])
        driver = Drivers.get("mine")
        write(tmp_path, "late", good("late"))
        Drivers.load([str(tmp_path)])
        assert "late" not in Drivers.names()
        assert Drivers.get("mine") is driver

    def test_missing_directory(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A directory that is not there is logged; the others count."""
        Drivers.load([str(tmp_path / "nowhere")])
        assert "static" in Drivers.names()
        assert "nowhere" in caplog.text

    def test_imports_of_itself(self, tmp_path: Path) -> None:
        """A driver may import its own modules as parts of `nodepool.driver`, as those of 11.0.0 do."""
        text = "from nodepool.driver.whole.part import Base\nfrom nodepool.driver.whole import part\n"
        package = write(tmp_path, "whole", text + good("whole", "assert part.Base is Base"))
        (package / "part.py").write_text("class Base: pass\n", encoding="utf-8")
        Drivers.load([str(tmp_path)])
        assert type(Drivers.get("whole")).__module__ == "nodepool.driver.whole"
        assert vars(sys.modules["nodepool.driver"])["whole"] is sys.modules["nodepool.driver.whole"]

    def test_imports_of_another(self, tmp_path: Path) -> None:
        """One driver may build on another, whichever is asked for first; there is one copy of each."""
        write(tmp_path, "alpha", "from nodepool.driver.beta.part import Base\n" + good("alpha", "shared = Base"))
        package = write(
            tmp_path, "beta", "from nodepool.driver.beta.part import Base\n" + good("beta", "shared = Base")
        )
        (package / "part.py").write_text("class Base: pass\n", encoding="utf-8")
        Drivers.load([str(tmp_path)])
        modules = [sys.modules[type(Drivers.get(name)).__module__] for name in ("alpha", "beta")]
        assert vars(modules[0])["shared"] is vars(modules[1])["shared"]

    def test_mended(self, tmp_path: Path) -> None:
        """A driver that could not be imported is read anew at the next attempt, all of it."""
        package = write(tmp_path, "odd", "from nodepool.driver.odd.part import Base\n" + good("odd"))
        (package / "part.py").write_text("class Other: pass\n", encoding="utf-8")
        Drivers.load([str(tmp_path)])
        with pytest.raises(DriverUnavailable, match="Base"):
            Drivers.get("odd")
        (package / "part.py").write_text("class Base:\n    pass\n", encoding="utf-8")
        assert Drivers.get("odd").name == "odd"

    def test_hidden_builtin_comes_back(self, tmp_path: Path) -> None:
        """One that hides a built-in driver meets none of its modules; afterwards the old classes are in use again."""
        before = importlib.import_module("nodepool.driver.static.config")
        write(
            tmp_path, "static", good("static", "import sys\nassert 'nodepool.driver.static.config' not in sys.modules")
        )
        Drivers.load([str(tmp_path)])
        assert type(Drivers.get("static")).__name__ == "Good"
        Drivers.load()
        assert type(Drivers.get("static")).__name__ == "StaticDriver"
        assert importlib.import_module("nodepool.driver.static.config") is before
        assert vars(sys.modules["nodepool.driver"])["static"] is sys.modules["nodepool.driver.static"]

    def test_broken_one_leaves_the_builtin_modules(self, tmp_path: Path) -> None:
        before = importlib.import_module("nodepool.driver.static.config")
        write(tmp_path, "static", "raise KeyError")
        Drivers.load([str(tmp_path)])
        with pytest.raises(DriverUnavailable, match="KeyError"):
            Drivers.get("static")
        Drivers.load()
        assert Drivers.get("static").name == "static"
        assert importlib.import_module("nodepool.driver.static.config") is before

    @pytest.mark.parametrize("name", ["framework", "statemachine", "utils", "config"])
    def test_taken_names(self, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
        """A driver must not take the place of a module of `nodepool.driver`."""
        write(tmp_path, name, good(name))
        Drivers.load([str(tmp_path)])
        assert name not in Drivers.names()
        assert f"no driver can have the name {name}" in caplog.text

    def test_modules_of_a_package(self, tmp_path: Path) -> None:
        """A driver of several modules imports its own by relative imports."""
        package = write(tmp_path, "split", "from .part import Base\n" + good("split", "class Unrelated(Base): pass"))
        (package / "part.py").write_text("class Base: pass\n", encoding="utf-8")
        Drivers.load([str(tmp_path)])
        assert Drivers.get("split").name == "split"

    def test_listing_imports_nothing(self) -> None:
        """Drivers are imported only when a configuration names them."""
        code = (
            "import sys; from nodepool.driver.registry import Drivers; Drivers.load(); assert Drivers.names();"
            "sys.exit(any(name.startswith(('nodepool.driver.static', 'nodepool.driver.fake')) for name in sys.modules))"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestBroken:
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
        ],
    )
    def test_one_clear_line(self, tmp_path: Path, text: str, expected: str) -> None:
        """Whatever is wrong with a driver, it is one line that names it; others still work."""
        write(tmp_path, "mine", text)
        Drivers.load([str(tmp_path)])
        with pytest.raises(DriverUnavailable) as caught:
            Drivers.get("mine")
        assert expected in str(caught.value)
        assert "mine" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
        assert Drivers.get("static").name == "static"

    def test_repaired(self, tmp_path: Path) -> None:
        """A driver that failed is tried again the next time."""
        package = write(tmp_path, "mine", "import no_such_library")
        Drivers.load([str(tmp_path)])
        with pytest.raises(DriverUnavailable):
            Drivers.get("mine")
        (package / "__init__.py").write_text(good("mine"), encoding="utf-8")
        assert Drivers.get("mine").name == "mine"

    def test_name_is_the_directory(self, tmp_path: Path) -> None:
        """A driver without a name has that of its directory."""
        write(tmp_path, "mine", good(""))
        Drivers.load([str(tmp_path)])
        assert Drivers.get("mine").name == "mine"


class TestLibraries:
    """A driver says which libraries it imports later; they are looked for when a configuration names it."""

    @pytest.fixture
    def _no_openstacksdk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "openstack", None)
        monkeypatch.setattr(Drivers, "_drivers", {})

    @pytest.mark.usefixtures("_no_openstacksdk")
    def test_builtin(self) -> None:
        """The text names the extra of Nodepool that brings it."""
        with pytest.raises(LibraryMissing) as caught:
            Drivers.get("openstack")
        assert "'openstack' needs what is not installed (No module named 'openstack')" in str(caught.value)
        assert str(caught.value).endswith(how_to_install("openstack"))

    @pytest.mark.parametrize("missing", ["google", "google.auth"])
    def test_inside_a_package(self, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Other libraries bring the package ``google``, too; google-auth, which the driver gce needs, is in it."""
        monkeypatch.delitem(sys.modules, "google.auth", raising=False)
        monkeypatch.setitem(sys.modules, missing, None)
        monkeypatch.setattr(Drivers, "_drivers", {})
        with pytest.raises(LibraryMissing) as caught:
            Drivers.get("gce")
        assert "'gce' needs what is not installed (No module named 'google.auth')" in str(caught.value)
        assert str(caught.value).endswith(how_to_install("gce"))

    def test_installed_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a restart."""
        write(tmp_path / "drivers", "mine", good("mine") + "    libraries = ('library_of_mine',)\n")
        Drivers.load([str(tmp_path / "drivers")])
        with pytest.raises(LibraryMissing, match=r"^driver 'mine' needs .*'library_of_mine'\)$"):
            Drivers.get("mine")
        (tmp_path / "library_of_mine.py").write_text("raise AssertionError('not imported yet')", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        assert Drivers.get("mine").name == "mine"

    def test_openstack_imports_no_library(self) -> None:
        """Commands and launchers without such a provider start fast."""
        code = (
            "import sys; from nodepool.driver.registry import Drivers; libraries = Drivers.get('openstack').libraries;"
            "sys.exit(', '.join({name.partition('.')[0] for name in sys.modules} & {*libraries}) or 0)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_reset(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """reference/driver 1: every driver in use hears of a load; one that fails does not keep it from the others."""
    counting = good("x") + "    resets = 0\n    def reset(self): self.resets += 1\n"
    write(tmp_path, "a", good("a") + "    def reset(self): raise ValueError('no')\n")
    write(tmp_path, "b", counting)
    write(tmp_path, "unused", counting)
    Drivers.load([str(tmp_path)])
    Drivers.get("a")
    driver = Drivers.get("b")
    Drivers.reset()
    assert driver.resets == 1  # type: ignore[attr-defined]
    assert "Driver a: error in reset()" in caplog.text


class TestContract:
    def test_complete(self) -> None:
        checks.check(type(Drivers.get("static")), "driver 'static'")

    def test_instance(self) -> None:
        """What a driver returns must be of the class of the contract."""
        assert checks.check_instance(1, int, "f()") == 1
        with pytest.raises(checks.ContractError, match=r"f\(\) must return a int, not str"):
            checks.check_instance("", int, "f()")
