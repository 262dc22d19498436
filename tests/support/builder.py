# SPDX-License-Identifier: Apache-2.0
"""A running image builder: ours, or any other executable that takes the same arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.launcher import ROOT
from tests.support.process import ChildProcess

#: Ours. With this module path and not the installed script, so that what is tested is this tree.
OUR_BUILDER = (sys.executable, "-m", "nodepool.cmd.builder")
#: Set it to run the tests under faults against another builder, e.g. the released one.
BUILDER_VARIABLE = "NODEPOOL_TEST_BUILDER"


class BuilderProcess(ChildProcess):
    """``<command> -c <config> -f`` with its log in ``log``.

    :param options: more arguments. :param environment: what its environment has beside ours.
    """

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
        env = {**os.environ, **(environment or {})}
        env.pop("PYTHONPATH", None)
        if command[0] == sys.executable:
            env["PYTHONPATH"] = str(ROOT)
        #: For commands of the tool, too.
        self.environment = env
        super().__init__([*command, "-c", str(config), "-d" if debug else "-f", *options], log, env=env)
        self.config_path = config
