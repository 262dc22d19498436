# SPDX-License-Identifier: Apache-2.0
"""A template: a complete driver for a cloud that does not exist. The driver guide walks through it.

Copy this directory, give the copy and ``name`` the name of your cloud, and replace ``client.py``. Imports among these
files are relative, so that a copy does not use the original.

* ``config.py``: the keys of the configuration;
* ``client.py``: the API of the cloud; ``types.py``: its answers;
* ``adapter.py``: the calls of the framework.

Comments in brackets are where the guide begins and ends its quotations.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.statemachine import StateMachineDriver

from .adapter import ExampleAdapter
from .config import ExampleProviderConfig


# [driver]
class ExampleDriver(StateMachineDriver):
    """``driver: example``"""

    name = "example"

    def getProviderConfig(self, provider: dict[str, Any]) -> ExampleProviderConfig:
        return ExampleProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> ExampleAdapter:
        return ExampleAdapter(provider_config)
