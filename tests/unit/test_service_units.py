# SPDX-License-Identifier: Apache-2.0
"""The units for systemd and the container images: what each daemon needs of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: systemd.exec(5): with a user other than root each of these switches NoNewPrivileges on, and sudo cannot become root.
AGAINST_SUDO = {
    *("DynamicUser", "LockPersonality", "MemoryDenyWriteExecute", "NoNewPrivileges", "PrivateDevices", "ProtectClock"),
    *(
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "RestrictAddressFamilies",
    ),
    *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "SystemCallArchitectures", "SystemCallFilter"),
}
#: What diskimage-builder and sudo do as root.
BUILD_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "MKNOD", "SETGID", "SETUID", "SYS_ADMIN", "SYS_CHROOT")


def unit(name: str) -> dict[str, str]:
    """The settings of a unit; the last line of a name counts."""
    lines = (ROOT / "etc" / f"{name}.service").read_text(encoding="ascii").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.parametrize("name", ["nodepool-launcher", "nodepool-builder", "nodepool-web"])
def test_daemon_units(name: str) -> None:
    """In the foreground, as user nodepool, with a watchdog."""
    settings = unit(name)
    assert settings["ExecStart"] == f"{name} -f"
    assert (settings["Type"], settings["NotifyAccess"]) == ("notify", "main")
    assert (settings["User"], settings["Group"]) == ("nodepool", "nodepool")
    assert float(settings["WatchdogSec"]) > 0


@pytest.mark.parametrize("name", ["nodepool-launcher", "nodepool-builder", "nodepool-web"])
def test_stop_leaves_the_directory_of_pid_files(name: str) -> None:
    """A daemon in the background needs it, and its user cannot make it again below /run."""
    assert unit(name)["RuntimeDirectory"] == "nodepool"
    assert unit(name)["RuntimeDirectoryPreserve"] == "yes"


@pytest.mark.parametrize("name", ["nodepool-launcher", "nodepool-web"])
def test_addresses_of_the_host_can_be_read(name: str) -> None:
    """openstacksdk asks for them by netlink when a provider starts."""
    assert "AF_NETLINK" in unit(name)["RestrictAddressFamilies"].split()


def test_builds_can_work() -> None:
    """sudo becomes root, and what a build does as root is allowed."""
    settings = unit("nodepool-builder")
    assert not AGAINST_SUDO & set(settings)
    dropped = settings["CapabilityBoundingSet"]
    assert dropped.startswith("~")
    assert not {f"CAP_{name}" for name in BUILD_CAPABILITIES} & set(dropped[1:].split())


def test_stop_of_the_builder() -> None:
    """SIGTERM does not reach what diskimage-builder's traps write to, and there is time for them."""
    settings = unit("nodepool-builder")
    assert settings["KillMode"] == "mixed"
    assert float(settings["TimeoutStopSec"]) >= 60


def test_targets_of_the_dockerfile() -> None:
    targets = re.findall(r"^FROM base AS (\S+)$", (ROOT / "Dockerfile").read_text(encoding="ascii"), re.MULTILINE)
    assert targets == ["nodepool", "nodepool-launcher", "nodepool-web", "nodepool-builder"]
