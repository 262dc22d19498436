# SPDX-License-Identifier: Apache-2.0
"""tools/install on a fresh Debian 12, from the first command to the last one (how-to/install, tutorial/zookeeper)."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.functional.install import debian_zookeeper
from tests.functional.install.conftest import SOURCE
from tests.support.debian_tree import DebianTree
from tests.support.launcher_config import StaticProvider, static_hosts
from tests.support.ports import free_ports
from tests.support.wait import wait_for

#: A Debian and many packages from PyPI.
pytestmark = pytest.mark.timeout(3000)

TOOL: Final = f"{SOURCE}/tools/install"
CONFIGURATION: Final = "/etc/nodepool/nodepool.yaml"
UNIT: Final = "/etc/systemd/system/nodepool-launcher.service"
#: As systemd starts it: no process in between that would keep signals.
AS_NODEPOOL: Final = (
    *("setpriv", "--reuid=nodepool", "--regid=nodepool", "--init-groups"),
    *("env", "HOME=/var/lib/nodepool"),
)
#: A daemon on a busy machine; seconds.
PATIENCE: Final = 120.0


@pytest.fixture
def debian(make_debian: Callable[..., DebianTree]) -> DebianTree:
    return make_debian()


def advised(output: str) -> list[str]:
    """The commands that it tells to type."""
    return [line.strip() for line in output.splitlines() if line.startswith("  ")]


def configure(debian: DebianTree, **keys: Any) -> None:
    """Edit the configuration, as an operator does: owner and mode stay."""
    path = debian.path(CONFIGURATION)
    data = {**yaml.safe_load(path.read_text(encoding="utf-8")), **keys}
    path.write_text(yaml.safe_dump(data), encoding="utf-8")


def serves(debian: DebianTree) -> bool:
    """Is the node of the only host there and ready?"""
    told = debian("nodepool", "list")
    return told.status == 0 and any("127.1.0.1" in row and "ready" in row for row in told.rows)


def test_from_the_first_command_to_the_last(debian: DebianTree, tmp_path: Path) -> None:
    told = debian.output(TOOL, "--dry-run")
    assert "would install Debian packages: python3 python3-venv" in told
    assert debian("id", "nodepool").status != 0

    told = debian.output(TOOL, "--extras", "tracing")
    assert "Installing Debian packages: python3 python3-venv" in told
    assert "Nothing to do: everything is as it should be." in debian.output(TOOL)
    assert "Nodepool version: " in debian.output("nodepool", "--version")
    assert "usage: nodepool-web" in debian.output("nodepool-web", "--help")
    debian.output("/opt/nodepool/bin/python", "-c", "import opentelemetry.sdk")
    say = "from nodepool.version import how_to_install; print(how_to_install('web-login'))"
    advice = f"to install it: {TOOL} --extras web-login\n"
    assert debian.output("/opt/nodepool/bin/python", "-c", say) == advice
    for place in ("man/man1/nodepool.1", "bash-completion/completions/nodepool"):
        assert debian.path(debian.output("readlink", "-f", f"/usr/local/share/{place}").strip()).is_file()
    assert debian.output("stat", "-c", "%U:%G %a", "/run", "/run/nodepool") == "root:root 755\nnodepool:nodepool 755\n"
    units = sorted(path.name for path in debian.path(UNIT).parent.glob("*.service"))
    assert len(units) == 3
    verified = debian("systemd-analyze", "verify", *(f"/etc/systemd/system/{name}" for name in units))
    assert (verified.status, verified.out, verified.err) == (0, "", "")

    commands = advised(told)
    look, start = commands[-2:]
    assert start == "systemctl enable --now nodepool-launcher"
    for command in commands[:-2]:
        debian.output("sh", "-ec", command)
    (port,) = free_ports(1)
    try:
        debian_zookeeper.start(debian, port)
        configure(debian, **{"zookeeper-servers": [{"host": "127.0.0.1", "port": port}]})
        wait_for("ZooKeeper answers", lambda: debian("sh", "-ec", look).status == 0, PATIENCE)
        assert "Authenticated Id 'CN=nodepool'" in debian.path("/var/log/zookeeper/zookeeper.log").read_text("utf-8")
        assert list(debian.path("/var/lib/zookeeper").glob("version-2/*"))
        launchers(debian, tmp_path)
    finally:
        debian_zookeeper.stop(debian)
    uninstall(debian)


def launchers(debian: DebianTree, tmp_path: Path) -> None:
    """One as the unit starts it, and one in the background."""
    (port,) = free_ports(1)
    configure(
        debian,
        webapp={"listen_address": "127.0.0.1", "port": port},
        labels=[{"name": "small"}],
        providers=[StaticProvider(static_hosts(1)).as_config()],
    )
    debian.output("nodepool", "config-validate")
    unit = debian.path(UNIT).read_text(encoding="ascii")
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    launcher = debian.daemon([*AS_NODEPOOL, *command.split()], tmp_path / "launcher.log")
    try:
        wait_for("the launcher serves", lambda: serves(debian), PATIENCE)
        refused = debian(TOOL, "--uninstall")
        assert refused.status == 1
        assert "stop them first" in refused.err
    finally:
        launcher.stop(seconds=PATIENCE)
    assert launcher.returncode == 0, launcher.log_text()
    assert "Traceback" not in launcher.log_text()

    debian.output(*AS_NODEPOOL, "nodepool-launcher")
    file = debian.path("/run/nodepool/nodepool.pid")
    try:
        wait_for(
            "the launcher in the background serves", lambda: "small" in debian("nodepool", "label-list").out, PATIENCE
        )
    finally:
        os.kill(int(file.read_text(encoding="ascii")), signal.SIGTERM)
        wait_for("the launcher in the background has ended", lambda: not file.exists(), PATIENCE)
    assert "Traceback" not in debian.path("/var/log/nodepool/nodepool.log").read_text(encoding="utf-8")


def uninstall(debian: DebianTree) -> None:
    """What was edited stays, until --purge."""
    with debian.path(UNIT).open("a", encoding="ascii") as file:
        file.write("# edited\n")
    told = debian.output(TOOL, "--uninstall")
    assert f"{UNIT} (it was edited, so it stays)" in told
    assert debian("sh", "-c", "command -v nodepool").status != 0
    assert not list(debian.path("/opt").iterdir())
    assert debian.path(CONFIGURATION).is_file()
    debian.output("id", "nodepool")
    debian.output(TOOL, "--uninstall", "--purge")
    for place in (UNIT, CONFIGURATION, "/etc/nodepool", "/var/lib/nodepool", "/var/log/nodepool", "/run/nodepool"):
        assert not debian.path(place).exists()
    assert debian("id", "nodepool").status != 0
