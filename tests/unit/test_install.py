# SPDX-License-Identifier: Apache-2.0
"""``tools/install`` (how-to/install): as a whole on a machine in a directory, its script, and a real environment."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from install_lib import __main__ as tool
from install_lib.errors import InstallError
from install_lib.host import Host
from install_lib.pages import PAGES
from install_lib.plan import CONFIGURATION, UNITS
from install_lib.record import PLACE
from nodepool.version import how_to_install
from tests.support.tables import rows

ROOT: Final = Path(__file__).parents[2]
TOOL: Final = ROOT / "tools" / "install"
UNIT: Final = "/etc/systemd/system/nodepool-launcher.service"
PROGRAM: Final = "/usr/local/bin/nodepool"
NOTHING: Final = "Nothing to do: everything is as it should be."


class Machine(Host):
    """A machine in a directory, with accounts and owners as a real one has; commands only leave their traces.

    :ivar commands: what was run. :ivar fails: a command with this word in it fails.
    """

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(root)
        self.capsys = capsys
        self.accounts: set[str] = set()
        self.owners: dict[str, str] = {}
        self.commands: list[list[str]] = []
        self.fails = ""
        self.systemd = False
        self.running: dict[str, int] = {}

    @property
    def is_tree(self) -> bool:
        return False

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path | None = None) -> str:
        self.commands.append(list(command))
        if self.fails and self.fails in command:
            raise InstallError(f"{command[0]} failed")
        if command[0] in {"groupadd", "useradd"}:
            self.accounts.add(f"{command[0][:-3]} {command[-1]}")
        if command[0] in {"groupdel", "userdel"}:
            self.accounts.discard(f"{command[0][:-3]} {command[-1]}")
        if command[-2] == "venv":
            (Path(command[-1]) / "bin").mkdir(parents=True)
            (Path(command[-1]) / "pyvenv.cfg").touch()
        if "sphinx" in command:
            pages = Path(command[-1])
            pages.mkdir(parents=True)
            for page in PAGES:
                (pages / f"{page}.1").write_text(page, encoding="utf-8")
        return ""

    def has_user(self, name: str) -> bool:
        return f"user {name}" in self.accounts

    def has_group(self, name: str) -> bool:
        return f"group {name}" in self.accounts

    def owner(self, path: Path) -> str:
        return self.owners.get(str(path), "root")

    def own(self, path: Path, user: str, group: str) -> None:
        self.owners[str(path)] = user

    def has_systemd(self) -> bool:
        return self.systemd

    def processes(self, text: str) -> list[int]:
        return [number for place, number in self.running.items() if place.startswith(text)]

    def ran(self, word: str) -> list[list[str]]:
        """The commands with a word in them."""
        return [command for command in self.commands if word in command]

    def install(self, *arguments: str, status: int = 0) -> str:
        """Run the tool on it; returns what it wrote."""
        self.capsys.readouterr()
        assert tool.main(list(arguments), self) == status
        out, err = self.capsys.readouterr()
        return err if status else out

    def write(self, place: str, text: str) -> None:
        path = self.path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="ascii")

    def read(self, place: str) -> str:
        return self.path(place).read_text(encoding="ascii")

    def left(self) -> set[str]:
        """Files."""
        return {name for name, (_, content) in snapshot(self.path("/")).items() if content is not None}

    def runs(self) -> dict[str, int]:
        """A program of the environment that is in use."""
        place = str(self.path("/opt/nodepool").resolve()).removeprefix(str(self.root))
        return {f"{place}/bin/python": 17}


def snapshot(root: Path) -> dict[str, tuple[int, object]]:
    """Everything below a directory: mode, and content or target."""
    found: dict[str, tuple[int, object]] = {}
    for path in sorted(root.rglob("*")):
        content: object = None
        if path.is_symlink():
            content = path.readlink()
        elif path.is_file():
            content = (path.read_bytes(), path.stat().st_mtime_ns)
        found[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return found


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path / "machine", capsys)


Change = Callable[[str, str], None]


@pytest.fixture
def change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Change:
    """The source gets another content of one of its files: it is where the tool itself is."""

    def changed(name: str, text: str) -> None:
        top = tmp_path / f"source{len(list(tmp_path.iterdir()))}"
        first = Path(name).parts[0]
        (top / first).mkdir(parents=True)
        for one in ROOT.iterdir():
            if not one.name.startswith(".") and one.name != first:
                (top / one.name).symlink_to(one)
        for one in (ROOT / first).iterdir():
            (top / first / one.name).symlink_to(one)
        (top / name).unlink(missing_ok=True)
        (top / name).write_text(text, encoding="utf-8")
        monkeypatch.setattr(tool, "TOP", top)

    return changed


def test_runs_that_change_nothing(host: Machine, tmp_path: Path) -> None:
    """A dry run, a second run, and one on a record that cannot be read."""
    before = snapshot(tmp_path)
    lines = host.install("--dry-run").splitlines()
    assert (snapshot(tmp_path), host.commands) == (before, [])
    assert {"would make user nodepool (home /var/lib/nodepool, no login)", f"would write {UNIT}"} <= set(lines)
    assert lines[-1].startswith("Dry run: nothing was changed; ")
    host.install("--extras", "tracing")
    before, commands = snapshot(tmp_path), list(host.commands)
    *steps, last = host.install().splitlines()
    assert (snapshot(tmp_path), host.commands, last) == (before, commands, NOTHING)
    assert all(line.startswith("ok: ") for line in steps)
    host.install("--uninstall", "--purge", "--dry-run")
    host.running = host.runs()
    assert "run (process 17): stop them first" in host.install("--uninstall", status=1)
    assert snapshot(tmp_path) == before
    host.write(PLACE, json.dumps({"unknown": 1}))
    assert "install.json cannot be read" in host.install(status=1)


@pytest.mark.parametrize("word", ["useradd", "venv", "sphinx"])
def test_failed_run_is_repeated(host: Machine, word: str) -> None:
    host.fails = word
    assert " failed" in host.install(status=1)
    assert not host.path("/opt/nodepool").exists()
    host.fails = ""
    host.install()
    assert NOTHING in host.install()


@pytest.mark.parametrize("place", [UNIT, CONFIGURATION])
def test_edited_file_stays(host: Machine, change: Change, tmp_path: Path, place: str) -> None:
    """Where the new one differs it is laid beside it, once. One that was not edited is replaced."""
    host.install()
    host.write(place, "edited")
    stays = f"ok: file {place} (it was edited, so it stays"
    assert f"{stays})" in host.install()
    assert not host.path(f"{place}.new").exists()
    name = "nodepool-first.yaml" if place == CONFIGURATION else Path(place).name
    change(f"etc/{name}", "a new one\n")
    assert f"keep {place}, which was edited" in host.install()
    assert (host.read(place), host.read(f"{place}.new")) == ("edited", "a new one\n")
    before = snapshot(tmp_path)
    assert f"{stays}; the new one is {place}.new)" in host.install()
    assert snapshot(tmp_path) == before
    host.path(f"{place}.new").unlink()
    host.install()
    assert not host.path(f"{place}.new").exists()
    assert f"{stays})" in host.install("--uninstall") or place == CONFIGURATION
    assert host.read(place) == "edited"


def test_what_was_there_before(host: Machine, change: Change) -> None:
    """A masked unit, a new file of another program and a program of 11.0.0 stay, and the last one comes back."""
    masked = "/etc/systemd/system/nodepool-builder.service"
    host.write(UNIT, "by hand")
    host.write(f"{UNIT}.new", "of others")
    host.path(masked).symlink_to("/dev/null")
    host.write(PROGRAM, "of 11.0.0")
    host.install()
    assert host.read(f"{UNIT}.new") == "of others"
    assert "ExecStart=" in host.read(f"{UNIT}.new.1")
    assert str(host.path(masked).readlink()) == "/dev/null"
    web = "/etc/systemd/system/nodepool-web.service"
    change(f"etc/{Path(web).name}", "a new one\n")
    host.write(PROGRAM, "another one")
    out = host.install()
    assert (host.read(web), host.path(f"{web}.new").exists()) == ("a new one\n", False)
    assert (host.read(f"{PROGRAM}.old"), host.read(f"{PROGRAM}.old.1")) == ("of 11.0.0", "another one")
    assert "systemctl try-restart nodepool-launcher" in out, "what to type after an update"
    assert "nodepool-tls" not in out.partition("\n\n")[2]
    host.install("--uninstall")
    assert host.read(PROGRAM) == "of 11.0.0"


def test_directory_of_others(host: Machine) -> None:
    """Nothing is changed then, and another directory does. Extras of earlier runs stay; unknown ones are refused."""
    host.path("/opt/nodepool/images").mkdir(parents=True)
    assert "/opt/nodepool is there and was not made by tools/install" in host.install(status=1)
    assert host.commands == []
    other = ("--directory", "/opt/nodepool-13", "--extras", "traces")
    assert "there is no extra traces; there are: aws, " in host.install(*other, status=1)
    assert host.commands == []
    host.install("--directory", "/opt/nodepool-12", "--extras", "tracing", "--also", "objgraph")
    host.install("--extras", "web-login")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.prefix", str(host.path("/opt/nodepool-12")))
        assert how_to_install("aws") == f"to install it: {shlex.quote(str(TOOL))} --extras aws"
    assert str(host.path(PROGRAM).readlink()) == "/opt/nodepool-12/bin/nodepool"
    assert host.path("/opt/nodepool/images").is_dir()
    command = host.ran("install")[-2]
    assert command[-2].endswith("/source[tracing,web-login]")
    assert command[-1] == "objgraph"


def test_update_keeps_one_environment_for_going_back(host: Machine, change: Change) -> None:
    """Older ones are removed, but for those with files of others, and what runs."""
    places = []
    for number in range(5):
        change("etc/x.yaml", f"{number}")
        host.install()
        path = host.path("/opt/nodepool").resolve()
        os.utime(path / "nodepool-install.json", (number, number))
        places.append(path)
        if number == 0:
            (path / "images").mkdir()
        if number == 1:
            host.running = host.runs()
    assert [path.exists() for path in places] == [True, True, False, True, True]


def test_uninstall(host: Machine) -> None:
    """Without --purge configuration, data, logs and the user stay; with it only what was there before."""
    host.systemd = True
    host.path("/var/log/nodepool").mkdir(parents=True)
    host.install()
    host.install()
    assert len(host.ran("daemon-reload")) == 1
    host.install("--uninstall")
    assert host.left() == {CONFIGURATION[1:], PLACE[1:]}
    assert not list(host.path("/opt").iterdir())
    assert host.path("/var/lib/nodepool").is_dir()
    assert "user nodepool" in host.accounts
    assert host.ran("disable")[0][3:] == [f"{name}.service" for name in UNITS]
    assert host.install("--uninstall").splitlines()[-1] == NOTHING
    host.install("--uninstall", "--purge")
    assert (host.left(), host.accounts) == (set(), set())
    assert (host.path("/etc/nodepool").exists(), host.path("/var/log/nodepool").is_dir()) == (False, True)


@rows(__file__, "test_script")
def test_script(tmp_path: Path, arguments: str, python: str, status: int, text: str) -> None:
    """With programs of the system replaced: one line says why, nothing is tried, and apt is never called."""
    programs = {"id": "echo 1000", "python3": python, "apt-get": f"touch {tmp_path}/called"}
    for name, line in programs.items() if python else ():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n", encoding="ascii")
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["bash", str(TOOL), *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == status
    assert text in (done.stderr if status else done.stdout)
    assert not (tmp_path / "called").exists()
