# SPDX-License-Identifier: Apache-2.0
"""What a launch asks of its provider's configuration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.driver.framework.sections import LaunchingProviderConfig
from nodepool.driver.statemachine.phases.phase import LaunchOrder
from nodepool.model.config_keys import keys_of


def order(**settings: Any) -> LaunchOrder:
    nothing = cast(Any, None)
    return LaunchOrder(nothing, nothing, nothing, SimpleNamespace(**settings), nothing)


@pytest.mark.parametrize("name", ["launch_retries", "launch_timeout", "boot_timeout"])
def test_settings(name: str) -> None:
    """A driver that does not know the key has the default of all others."""
    (key,) = (key for key in keys_of(LaunchingProviderConfig) if key.attribute == name)
    assert getattr(order(), name) == key.default
    assert getattr(order(**{name: 7}), name) == 7
