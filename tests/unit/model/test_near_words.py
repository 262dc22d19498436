# SPDX-License-Identifier: Apache-2.0
"""Words that may be meant."""

from __future__ import annotations

from nodepool.model.config_keys import did_you_mean


def test_did_you_mean() -> None:
    assert did_you_mean("lables", ["labels", "providers"]) == ", did you mean 'labels'?"
    assert did_you_mean("xyz", ["labels"]) == ""
    assert did_you_mean(7, ["labels"]) == ""
    assert did_you_mean("x", []) == ""
