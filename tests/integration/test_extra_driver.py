# SPDX-License-Identifier: Apache-2.0
"""A driver that is not part of the package, as its author installs it: a directory and an environment variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from nodepool.driver.registry import PATH_VARIABLE
from tests.scenario.test_example import copy_of_the_example
from tests.support.command_line import CommandLine


def test_copied_driver(tmp_path: Path, nodepool: CommandLine) -> None:
    """reference/driver 0: config-validate knows it. In launchers: `tests.scenario.test_example`."""
    copy_of_the_example(tmp_path / "drivers", "mycloud")
    label = {"name": "small", "cloud-image": "debian", "size": "small"}
    provider = {
        "name": "mine",
        "driver": "mycloud",
        "url": "http://127.0.0.1:1",
        "cloud-images": [{"name": "debian", "username": "debian"}],
        "pools": [{"name": "main", "labels": [label]}],
    }
    settings: dict[str, Any] = yaml.safe_load(nodepool.config.read_text(encoding="utf-8"))
    nodepool.config.write_text(yaml.safe_dump({**settings, "providers": [provider]}), encoding="utf-8")
    assert nodepool("config-validate").status == 1
    nodepool.environment[PATH_VARIABLE] = str(tmp_path / "drivers")
    result = nodepool("config-validate")
    assert result.status == 0, result.err
