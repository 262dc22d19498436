# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.kubernetes.config`."""

from __future__ import annotations

import pytest

from nodepool.driver.kubernetes import config


@pytest.mark.parametrize(
    ("name", "good"), [("a", True), ("pod-1", True), ("Pod", False), ("a_b", False), ("-a", False), ("a" * 64, False)]
)
def test_dns_labels(name: str, good: bool) -> None:
    assert config.is_dns_label(name) is good


@pytest.mark.parametrize(
    ("name", "good"),
    [("team", True), ("example.com/team", True), ("a/b/c", False), ("/a", False), ("a/", False), ("", False)],
)
def test_keys(name: str, good: bool) -> None:
    assert config.is_key(name) is good


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("as-it.is_0", "as-it.is_0"),
        ("org/project", "org_project"),
        ("--x--", "x"),
        ("", ""),
        ("ä", ""),
        ("a" * 62 + "-b", "a" * 62),
    ],
)
def test_mangled(value: str, expected: str) -> None:
    """What is left is a value that the API takes."""
    assert config.mangled(value) == expected
    assert config.is_label_value(expected)


def test_texts_of_yaml() -> None:
    assert [config.as_text(value) for value in (True, 12, "x")] == ["true", "12", "x"]
