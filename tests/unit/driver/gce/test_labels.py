# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.types`."""

from __future__ import annotations

import re

import pytest

from nodepool.driver.gce.types import LabelReader, label_value, labels_of
from nodepool.driver.statemachine.instance import for_node


@pytest.mark.parametrize("text", ["north", "0000000042", "a_b-c", ""])
def test_values_that_fit(text: str) -> None:
    assert label_value(text) == text


@pytest.mark.parametrize("text", ["GCE North", "eu.west", "x" * 64, "X" * 300, "Ä"])
def test_values_that_do_not(text: str) -> None:
    """They are changed, and never equal those of another text."""
    assert re.fullmatch(r"[a-z0-9_-]{1,63}", label_value(text))
    assert label_value(text) != label_value(f"{text}.")


def test_read_again() -> None:
    """CM-1: what the labels say is the metadata, whatever the names of provider and pool."""
    written = for_node("0000000042", "Main Pool", "gce.north")
    reader = LabelReader("gce.north", ["Main Pool", "other"])
    assert reader.metadata({**labels_of(written), "team": "ci"}) == written
    other = LabelReader("gce-north", []).metadata(labels_of(written))
    assert other["nodepool_provider_name"] != "gce-north"


def test_filter() -> None:
    value = label_value("gce.north")
    assert LabelReader("gce.north", []).own_filter == f'labels.nodepool_provider_name="{value}"'
