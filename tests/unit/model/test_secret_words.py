# SPDX-License-Identifier: Apache-2.0
"""Which keys of a configuration may hold a secret."""

from __future__ import annotations

import pytest

from nodepool.model.config_keys import names_a_secret


@pytest.mark.parametrize(
    "path", [("password",), ("env-vars", "X"), ("auth", "API-KEY"), ("my_token_id",), (0, "secret")]
)
def test_secret(path: tuple[object, ...]) -> None:
    assert names_a_secret(path)


@pytest.mark.parametrize("path", [(), ("max-servers",), ("key-name",), ("host-key", 0)])
def test_no_secret(path: tuple[object, ...]) -> None:
    assert not names_a_secret(path)
