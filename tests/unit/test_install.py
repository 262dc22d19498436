# SPDX-License-Identifier: Apache-2.0
"""``tools/install`` as a whole, on a machine in a directory (how-to/install)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

from install_lib import __main__ as tool
from install_lib.plan import CONFIGURATION, PROGRAMS, UNITS
from install_lib.record import PLACE
from tests.support.install_host import InstallHost, snapshot

ROOT: Final = Path(__file__).parents[2]
UNIT: Final = "/etc/systemd/system/nodepool-launcher.service"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def host(tmp_path: Path) -> InstallHost:
    return InstallHost(tmp_path / "machine")


def install(host: InstallHost, *arguments: str) -> int:
    return tool.main(list(arguments), host)


def changed_source(host: InstallHost, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> Path:
    """The source with another content of one of its files."""
    assert host.root is not None
    top = host.root.parent / f"source{len(list(host.root.parent.iterdir()))}"
    top.mkdir()
    for one in ROOT.iterdir():
        if not one.name.startswith(".") and one.name != Path(name).parts[0]:
            (top / one.name).symlink_to(one)
    first = Path(name).parts[0]
    (top / first).mkdir()
    for one in (ROOT / first).iterdir():
        (top / first / one.name).symlink_to(one)
    (top / name).unlink(missing_ok=True)
    (top / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(tool, "TOP", top)
    return top


def test_what_is_there_afterwards(host: InstallHost) -> None:
    assert install(host) == 0
    assert host.accounts == {"user nodepool", "group nodepool"}
    for name in PROGRAMS:
        assert str(host.path(f"/usr/local/bin/{name}").readlink()) == f"/opt/nodepool/bin/{name}"
    for name in UNITS:
        unit = host.path(f"/etc/systemd/system/{name}.service")
        assert unit.read_bytes() == (ROOT / "etc" / unit.name).read_bytes()
    link = host.path("/opt/nodepool")
    assert (link / "share" / "man" / "man1" / "nodepool-tls.1").is_file()
    assert (link / "share" / "completion" / "_nodepool").read_text(encoding="utf-8").startswith("#compdef nodepool\n")
    assert host.path(CONFIGURATION).stat().st_mode & 0o777 == 0o640
    assert host.path("/etc/nodepool").stat().st_mode & 0o777 == 0o750


def test_programs_are_tried_as_the_user_of_the_daemons(host: InstallHost) -> None:
    """Python or the environment may be where only root gets. Then the one before stays in use."""
    install(host)
    before = host.path("/opt/nodepool").readlink()
    assert host.ran("runuser")[0][2] == "nodepool"
    host.fails = "runuser"
    assert install(host, "--extras", "tracing") == 1
    assert host.path("/opt/nodepool").readlink() == before


def test_only_its_own_directories_are_given_away(host: InstallHost) -> None:
    install(host)
    given = {path.removeprefix(str(host.root)) for path, user in host.owners.items() if user == "nodepool"}
    assert given == {"/var/lib/nodepool", "/var/lib/nodepool/tmp", "/var/log/nodepool", "/run/nodepool"}


def test_directory_of_somebody_else_stays_so(host: InstallHost, capsys: Captured) -> None:
    """As do one that is a link, and its mode."""
    data, logs = host.path("/var/lib/nodepool"), host.path("/var/log/nodepool")
    data.mkdir(parents=True, mode=0o700)
    host.owners[str(data)] = "zuul"
    logs.parent.mkdir()
    logs.symlink_to(host.path("/var"))
    install(host)
    assert host.owners[str(data)] == "zuul"
    assert str(logs) not in host.owners
    assert data.stat().st_mode & 0o777 == 0o700
    assert "ok: directory /var/lib/nodepool (it belongs to zuul and stays so;" in capsys.readouterr().out


def test_dry_run_changes_nothing(host: InstallHost, capsys: Captured, tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    assert install(host, "--dry-run") == 0
    assert snapshot(tmp_path) == before
    assert host.commands == []
    told = capsys.readouterr().out.splitlines()
    assert "would make user nodepool (home /var/lib/nodepool, no login)" in told
    assert f"would write {UNIT}" in told
    assert told[-1].startswith("Dry run: nothing was changed; ")


def test_second_run_changes_nothing(host: InstallHost, capsys: Captured, tmp_path: Path) -> None:
    install(host, "--extras", "tracing")
    before, commands = snapshot(tmp_path), list(host.commands)
    capsys.readouterr()
    assert install(host) == 0
    assert (snapshot(tmp_path), host.commands) == (before, commands)
    *steps, last = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok: ") for line in steps)
    assert last == "Nothing to do: everything is as it should be."


@pytest.mark.parametrize("word", ["useradd", "venv", "sphinx"])
def test_failed_run_is_repeated(host: InstallHost, capsys: Captured, word: str) -> None:
    host.fails = word
    assert install(host) == 1
    assert " failed" in capsys.readouterr().err
    assert not host.path("/opt/nodepool").exists()
    host.fails = ""
    assert install(host) == 0
    capsys.readouterr()
    install(host)
    assert "Nothing to do" in capsys.readouterr().out


class TestEditedFile:
    @pytest.mark.parametrize("place", [UNIT, CONFIGURATION])
    def test_stays(
        self, host: InstallHost, capsys: Captured, monkeypatch: pytest.MonkeyPatch, place: str, tmp_path: Path
    ) -> None:
        """The new one is laid beside it, once, and is gone with the installation."""
        install(host)
        host.path(place).write_text("edited", encoding="ascii")
        name = "nodepool-first.yaml" if place == CONFIGURATION else Path(place).name
        changed_source(host, monkeypatch, f"etc/{name}", "a new one\n")
        install(host)
        assert host.path(place).read_text(encoding="ascii") == "edited"
        assert host.path(f"{place}.new").read_text(encoding="ascii") == "a new one\n"
        assert f"keep {place}, which was edited" in capsys.readouterr().out
        before = snapshot(tmp_path)
        install(host)
        assert snapshot(tmp_path) == before
        assert f"ok: file {place} (it was edited, so it stays; the new one is {place}.new)" in capsys.readouterr().out
        host.path(f"{place}.new").unlink()
        install(host)
        assert not host.path(f"{place}.new").exists()

    @pytest.mark.parametrize("place", [UNIT, CONFIGURATION])
    def test_no_new_one_without_news(self, host: InstallHost, capsys: Captured, place: str) -> None:
        """Edited by the operator alone, as every configuration file is: a second run says no more."""
        install(host)
        host.path(place).write_text("edited", encoding="ascii")
        capsys.readouterr()
        assert install(host) == 0
        assert not host.path(f"{place}.new").exists()
        assert f"ok: file {place} (it was edited, so it stays)" in capsys.readouterr().out

    def test_new_one_of_somebody_else_stays(self, host: InstallHost) -> None:
        host.path(UNIT).parent.mkdir(parents=True)
        host.path(UNIT).write_text("by hand", encoding="ascii")
        host.path(f"{UNIT}.new").write_text("of somebody", encoding="ascii")
        install(host)
        assert host.path(f"{UNIT}.new").read_text(encoding="ascii") == "of somebody"
        assert "ExecStart=" in host.path(f"{UNIT}.new.1").read_text(encoding="ascii")

    def test_masked_unit_stays(self, host: InstallHost) -> None:
        """``systemctl mask`` makes a link to /dev/null of it."""
        host.path(UNIT).parent.mkdir(parents=True)
        host.path(UNIT).symlink_to("/dev/null")
        install(host)
        assert str(host.path(UNIT).readlink()) == "/dev/null"

    def test_one_that_nobody_edited_is_replaced(self, host: InstallHost, monkeypatch: pytest.MonkeyPatch) -> None:
        install(host)
        changed_source(host, monkeypatch, f"etc/{Path(UNIT).name}", "a new one\n")
        install(host)
        assert host.path(UNIT).read_text(encoding="ascii") == "a new one\n"
        assert not host.path(f"{UNIT}.new").exists()


class TestInTheWay:
    PROGRAM: Final = "/usr/local/bin/nodepool"

    def old_program(self, host: InstallHost, text: str) -> None:
        path = host.path(self.PROGRAM)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="ascii")

    def test_it_is_kept_and_comes_back(self, host: InstallHost) -> None:
        """Also what an earlier run has kept."""
        self.old_program(host, "of 11.0.0")
        install(host)
        assert host.path(f"{self.PROGRAM}.old").read_text(encoding="ascii") == "of 11.0.0"
        self.old_program(host, "another one")
        install(host)
        assert host.path(f"{self.PROGRAM}.old").read_text(encoding="ascii") == "of 11.0.0"
        assert host.path(f"{self.PROGRAM}.old.1").read_text(encoding="ascii") == "another one"
        install(host, "--uninstall")
        assert host.path(self.PROGRAM).read_text(encoding="ascii") == "of 11.0.0"

    def test_environment_of_somebody_else_is_not_touched(self, host: InstallHost, capsys: Captured) -> None:
        """Nothing is changed then, and another directory does."""
        host.path("/opt/nodepool/images").mkdir(parents=True)
        assert install(host) == 1
        assert "/opt/nodepool is there and was not made by tools/install" in capsys.readouterr().err
        assert host.commands == []
        assert install(host, "--directory", "/opt/nodepool-12") == 0
        assert install(host) == 0
        assert str(host.path(self.PROGRAM).readlink()) == "/opt/nodepool-12/bin/nodepool"
        assert host.path("/opt/nodepool/images").is_dir()


class TestExtras:
    def test_those_of_earlier_runs_stay(self, host: InstallHost) -> None:
        install(host, "--extras", "tracing", "--also", "objgraph")
        install(host, "--extras", "web-login")
        command = host.ran("install")[-2]
        assert command[-2].endswith("/source[tracing,web-login]")
        assert command[-1] == "objgraph"

    def test_unknown(self, host: InstallHost, capsys: Captured) -> None:
        assert install(host, "--extras", "traces") == 1
        message = capsys.readouterr().err
        assert "there is no extra traces; there are: aws, " in message
        assert ", tracing, web-login" in message
        assert host.commands == []


def test_what_to_type_next(host: InstallHost, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time: certificates and the first start. After an update: the restart."""
    install(host)
    assert "nodepool-tls -d /root/zk-tls init" in capsys.readouterr().out
    changed_source(host, monkeypatch, "etc/x.yaml", "new")
    install(host)
    told = capsys.readouterr().out
    assert "systemctl try-restart nodepool-launcher" in told
    assert "nodepool-tls" not in told.partition("\n\n")[2]


def test_update_keeps_one_environment_for_going_back(host: InstallHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older ones are removed, but for what somebody has put there, and what runs."""
    places = []
    for number in range(6):
        changed_source(host, monkeypatch, "etc/x.yaml", f"{number}")
        install(host)
        path = host.path("/opt/nodepool").resolve()
        os.utime(path / "nodepool-install.json", (number, number))
        places.append(path)
        if number == 0:
            (path / "images").mkdir()
        if number == 1:
            host.running[f"{str(path).removeprefix(str(host.root))}/bin/python"] = 17
    assert [path.exists() for path in places] == [True, True, False, False, True, True]


class TestUninstall:
    def test_everything_that_was_made(self, host: InstallHost) -> None:
        """But for configuration, data, logs and the user."""
        host.systemd = True
        install(host)
        assert install(host, "--uninstall") == 0
        left = {name for name, (_, content) in snapshot(host.path("/")).items() if content is not None}
        assert left == {CONFIGURATION[1:], PLACE[1:]}
        assert not list(host.path("/opt").iterdir())
        assert host.path("/var/lib/nodepool").is_dir()
        assert "user nodepool" in host.accounts
        assert host.ran("disable")[0][3:] == [f"{name}.service" for name in UNITS]

    def test_what_was_edited_stays(self, host: InstallHost, capsys: Captured) -> None:
        install(host)
        host.path(UNIT).write_text("edited", encoding="ascii")
        install(host, "--uninstall")
        assert host.path(UNIT).read_text(encoding="ascii") == "edited"
        assert f"ok: file {UNIT} (it was edited, so it stays)" in capsys.readouterr().out

    def test_purge(self, host: InstallHost) -> None:
        """Only what tools/install has made: the logs were there before."""
        host.path("/var/log/nodepool").mkdir(parents=True)
        install(host)
        host.path(UNIT).write_text("edited", encoding="ascii")
        install(host, "--uninstall")
        install(host, "--uninstall", "--purge")
        left = {name for name, (_, content) in snapshot(host.path("/")).items() if content is not None}
        assert left == set()
        assert not host.path("/etc/nodepool").exists()
        assert host.path("/var/log/nodepool").is_dir()
        assert host.accounts == set()

    def test_a_second_time(self, host: InstallHost, capsys: Captured) -> None:
        install(host)
        install(host, "--uninstall")
        capsys.readouterr()
        assert install(host, "--uninstall") == 0
        assert capsys.readouterr().out.splitlines()[-1] == "Nothing to do: everything is as it should be."

    def test_dry_run(self, host: InstallHost, tmp_path: Path) -> None:
        install(host)
        before = snapshot(tmp_path)
        assert install(host, "--uninstall", "--purge", "--dry-run") == 0
        assert snapshot(tmp_path) == before

    def test_programs_that_run(self, host: InstallHost, capsys: Captured, tmp_path: Path) -> None:
        install(host)
        place = str(host.path("/opt/nodepool").resolve()).removeprefix(str(host.root))
        host.running = {f"{place}/bin/python": 17}
        before = snapshot(tmp_path)
        assert install(host, "--uninstall") == 1
        assert f"programs in {place} run (process 17): stop them first" in capsys.readouterr().err
        assert snapshot(tmp_path) == before


class TestSystemd:
    def test_reads_changed_units(self, host: InstallHost) -> None:
        host.systemd = True
        install(host)
        assert len(host.ran("daemon-reload")) == 1
        install(host)
        assert len(host.ran("daemon-reload")) == 1

    def test_is_left_alone_where_it_does_not_run(self, host: InstallHost) -> None:
        install(host)
        assert host.ran("systemctl") == []
        assert host.ran("daemon-reload") == []


def test_record_that_is_broken(host: InstallHost, capsys: Captured) -> None:
    install(host)
    host.path(PLACE).write_text(json.dumps({"unknown": 1}), encoding="ascii")
    assert install(host) == 1
    assert "install.json cannot be read" in capsys.readouterr().err
