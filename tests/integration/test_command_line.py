# SPDX-License-Identifier: Apache-2.0
"""Commands and what they answer, against a real ZooKeeper with TLS (reference/commands 2): cases of ``tables.yaml``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.command_steps import CommandSteps
from tests.support.pool_znodes import PoolZnodes
from tests.support.tables import table

COMMANDS: dict[str, Any] = table(__file__, "commands")
WITH_CLOUDS: dict[str, Any] = table(__file__, "commands_with_clouds")


@pytest.mark.parametrize("case", COMMANDS)
def test_commands(nodepool: CommandLine, znodes: PoolZnodes, case: str) -> None:
    """For a static provider ``lab``."""
    CommandSteps(nodepool, znodes).run(COMMANDS[case])


@pytest.mark.parametrize("case", WITH_CLOUDS)
def test_commands_with_clouds(clouds: CommandLine, znodes: PoolZnodes, case: str) -> None:
    """For the clouds of `clouds`, too; the uploads of one of them are paused."""
    CommandSteps(clouds, znodes).run(WITH_CLOUDS[case])
