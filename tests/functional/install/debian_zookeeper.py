# SPDX-License-Identifier: Apache-2.0
"""Debian's ZooKeeper with TLS in a Debian tree, by the commands and the lines of tutorial/zookeeper."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Final

from tests.support.debian_tree import DebianTree

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "doc" / "source" / "tutorial" / "zookeeper.rst"
#: The port of the page.
PORT: Final = 2281
#: Nothing is started when a package is installed: a tree has no systemd, and the port without TLS is the machine's.
_POLICY: Final = "#!/bin/sh\nexit 101\n"
_PID_FILE: Final = "/run/zookeeper/zookeeper.pid"
#: What ``systemctl`` calls for Debian's package.
_SCRIPT: Final = "/etc/init.d/zookeeper"


def section(title: str) -> str:
    """The text of a section of the page."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f" {title}\n---")
    assert found, title
    return re.split(r"\n\d\. ", rest)[0]


def commands(text: str) -> list[str]:
    """What a text tells to type."""
    return re.findall(r"^   \$ (.+)$", text, re.MULTILINE)


def lines_to_add(text: str) -> str:
    """The block of lines for a file."""
    block = re.search(r"::\n\n((?:    .*\n|\n)+)", text)
    assert block is not None
    return textwrap.dedent(block[1]).strip() + "\n"


def start(debian: DebianTree, port: int) -> None:
    """Do what the page says, with another port. The caller stops the server.

    :raises AssertionError: a command failed.
    """
    policy = debian.path("/usr/sbin/policy-rc.d")
    policy.write_text(_POLICY, encoding="ascii")
    policy.chmod(0o755)
    packages, place = section("Install ZooKeeper"), section("Put the certificates into place")
    install, *numbers = commands(packages)
    debian.output("apt-get", "update")
    debian.output("env", "DEBIAN_FRONTEND=noninteractive", *install.replace(" install ", " install --yes ").split())
    with debian.path("/etc/zookeeper/conf_example/environment").open("a", encoding="ascii") as file:
        file.write(lines_to_add(packages))
    configuration = debian.path("/etc/zookeeper/conf_example/zoo.cfg")
    kept = [line for line in configuration.read_text(encoding="ascii").splitlines() if not _is_removed(line)]
    added = lines_to_add(place).replace(str(PORT), str(port))
    configuration.write_text("\n".join([*kept, added]), encoding="ascii")
    for command in [*numbers, *commands(place)]:
        debian.output("sh", "-ec", command.replace("systemctl restart zookeeper", f"{_SCRIPT} restart"))


def _is_removed(line: str) -> bool:
    return line.startswith(("clientPort=", "dataDir="))


def stop(debian: DebianTree) -> None:
    """End it. Blocks."""
    # As the package's script does. But that compares the program's path before, which is another one for each command:
    # each has mounts of its own.
    debian("start-stop-daemon", "--stop", "--oknodo", "--retry=TERM/30/KILL/5", f"--pidfile={_PID_FILE}")
