# SPDX-License-Identifier: Apache-2.0
"""The commands of doc/source/how-to/migrate.rst, run as they stand there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.migration.site import Kind, Site
from tests.support.launcher import ROOT

PAGE = ROOT / "doc" / "source" / "how-to" / "migrate.rst"
#: Where the page has the command lines.
TOOLS: Mapping[str, Kind] = {"/opt/nodepool/bin/nodepool": Kind.OURS, "/opt/nodepool-11/bin/nodepool": Kind.RELEASED}
#: What a test does not run: it is about the machine, or the test does it in another way.
LEFT_TO_THE_READER = ("systemctl", "journalctl", "tools/install")
FILE = "/etc/nodepool/nodepool.yaml"


def commands(text: str) -> Iterator[str]:
    """What follows a ``$`` in the page's console blocks."""
    for block in re.findall(r"^( *)\.\. code-block:: console\n((?:\n|\1 +.*\n)+)", text, re.MULTILINE):
        for line in block[1].splitlines():
            if line.strip().startswith("$ "):
                yield line.strip().removeprefix("$ ")


def runnable(text: str) -> list[str]:
    """Those that a test runs. :raises AssertionError: one is neither that nor known to be left out."""
    found = [command for command in commands(text) if not command.startswith(LEFT_TO_THE_READER)]
    unknown = [command for command in found if command.split()[0] not in TOOLS]
    assert not unknown, f"no test runs these commands of the page: {unknown}"
    return found


class Handbook:
    """Runs what the page says to check."""

    def __init__(self, site: Site, page: Path = PAGE) -> None:
        self._site = site
        self._commands = runnable(page.read_text(encoding="utf-8"))

    def check(self) -> list[str]:
        """Runs each command; returns what is wrong, a sentence each."""
        found = []
        for command in self._commands:
            answer = self._site.run_tool(self._arguments(shlex.split(command)[1:]), TOOLS[command.split()[0]])
            if answer.returncode != 0:
                found.append(f"{command}: exit status {answer.returncode}: {answer.stderr[-500:]}")
        return found

    def _arguments(self, words: Sequence[str]) -> list[str]:
        return [word.replace(FILE, str(self._site.config_of(0))) for word in words]
