# SPDX-License-Identifier: Apache-2.0
"""A simulator of a cloud as a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from simulators.base.client import AdminClient
from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

ROOT = Path(__file__).resolve().parents[2]
C = TypeVar("C", bound=AdminClient)


@contextmanager
def simulator_process(
    module: str,
    client_class: Callable[[str], C],
    directory: Path,
    settings: Mapping[str, Any],
    options: Sequence[str] = (),
) -> Iterator[C]:
    """Starts it, and gives a client of it when it answers. The process ends with the block.

    It gives each answer in one form: released drivers do not understand all, and figures must be the same each time.

    :param module: that runs it; its log is in the directory.
    :param options: more of them.
    """
    (port,) = free_ports(1)
    client = client_class(f"http://127.0.0.1:{port}")
    settings = {"by_turns": False, **settings}
    command = [sys.executable, "-m", module, "--port", str(port), *options, "--settings", json.dumps(settings)]
    process = ChildProcess(command, directory / f"{module.rpartition('.')[2]}.log", cwd=ROOT)
    process.start()
    try:
        wait_for("the simulator answers", lambda: client.url in process.log_text())
        yield client
    finally:
        process.stop()
