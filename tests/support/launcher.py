# SPDX-License-Identifier: Apache-2.0
"""A running launcher or builder: ours, or any other executable that takes the same arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.process import ChildProcess

ROOT = Path(__file__).resolve().parents[2]
#: Ours. With this module path and not the installed script, so that what is tested is this tree.
OUR_COMMAND = (sys.executable, "-m", "nodepool.cmd.launcher")
#: Set it to run the tests against another launcher, e.g. the released one.
COMMAND_VARIABLE = "NODEPOOL_TEST_LAUNCHER"
OUR_BUILDER = (sys.executable, "-m", "nodepool.cmd.builder")
#: Set it to run the tests under faults against another builder, e.g. the released one.
BUILDER_VARIABLE = "NODEPOOL_TEST_BUILDER"


def launcher_command() -> list[str]:
    """The launcher under test: ours unless the environment names another executable."""
    other = os.environ.get(COMMAND_VARIABLE)
    return other.split() if other else list(OUR_COMMAND)


def impatient_command(constants: Mapping[str, float]) -> list[str]:
    """Ours with other values of constants, by ``package.module.NAME``; another launcher under test keeps its own."""
    if os.environ.get(COMMAND_VARIABLE):
        return launcher_command()
    assignments = [f"{name}={number}" for name, number in constants.items()]
    return [sys.executable, "-m", "tests.support.impatient", "launcher", *assignments, "--"]


class DaemonProcess(ChildProcess):
    """``<command> -c <config> <options>`` with its log in ``log``.

    :param environment: what its environment has beside ours.
    """

    def __init__(
        self,
        command: Sequence[str],
        config: Path,
        log: Path,
        options: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        env = {**os.environ, **(environment or {})}
        env.pop("PYTHONPATH", None)
        if command[0] == sys.executable:
            env["PYTHONPATH"] = str(ROOT)
        #: For commands of the tool, too.
        self.environment = env
        super().__init__([*command, "-c", str(config), *options], log, env=env)
        self.config_path = config


class BuilderProcess(DaemonProcess):
    """:param options: more arguments."""

    def __init__(
        self,
        config: Path,
        log: Path,
        command: Sequence[str] = OUR_BUILDER,
        *,
        options: Sequence[str] = (),
        debug: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(command, config, log, ["-d" if debug else "-f", *options], environment)


class LauncherProcess(DaemonProcess):
    """:param web: it serves its web pages, where the configuration says."""

    def __init__(
        self,
        config: Path,
        log: Path,
        command: Sequence[str] | None = None,
        *,
        debug: bool = False,
        environment: Mapping[str, str] | None = None,
        web: bool = False,
    ) -> None:
        options = ["-d" if debug else "-f", *([] if web else ["--no-webapp"])]
        super().__init__(command or launcher_command(), config, log, options, environment)
        #: A test that provokes an error on purpose sets it.
        self.expected_tracebacks = False

    def tracebacks(self) -> str:
        """The log from its first traceback on; empty when there is none."""
        text = self.log_text()
        start = text.find("Traceback (most recent call last)")
        return "" if start < 0 else text[max(0, start - 500) : start + 4000]
