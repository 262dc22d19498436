# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import pytest

from nodepool.config.objects import Config
from nodepool.web.logs import logs_part

if TYPE_CHECKING:
    from nodepool.builder.supervisor import ImageBuilder


def part_of(port: int, *, login: bool = False) -> bool:
    """Does a builder with these settings serve its logs?"""
    config = Config()
    config.webapp_builder_port = port
    config.webapp_require_login = login
    part = logs_part(cast("ImageBuilder", None), config)
    return part is not None and not part.current.is_alive()


def test_only_with_a_port() -> None:
    """WP-49"""
    assert not part_of(0)
    assert part_of(8006)


def test_not_where_who_reads_has_to_log_in(caplog: pytest.LogCaptureFixture) -> None:
    """WP-49"""
    with caplog.at_level(logging.ERROR, "nodepool.web"):
        assert not part_of(8006, login=True)
    assert "webapp.auth.require-login" in caplog.text
