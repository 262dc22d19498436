# SPDX-License-Identifier: Apache-2.0
"""Settings as JSON."""

from __future__ import annotations

import pytest

from nodepool.testing.openstack.knobs import ErrorRule, Knobs, Quota


def test_settings_are_merged() -> None:
    knobs = Knobs()
    knobs.update({"boot_seconds": 2, "quota": {"cores": 5}, "latencies": {"compute.*": [1, 2]}})
    assert (knobs.boot_seconds, knobs.quota, knobs.latencies) == ((2, 2), Quota(cores=5), {"compute.*": (1, 2)})
    knobs.update({"errors": [{"operation": "image.*", "kind": "hang"}]})
    assert knobs.errors == [ErrorRule(operation="image.*", kind="hang")]
    assert knobs.quota.cores == 5


def test_all_settings_can_be_read_and_written_back() -> None:
    knobs, copy = Knobs(errors=[ErrorRule(kind="429", retry_after=3)], page_limit=3), Knobs()
    copy.update(knobs.as_json())
    assert copy == knobs


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"boot_secs": 1}, "unknown settings: boot_secs"),
        ({"errors": [{"kind": "200"}]}, "kind '200'"),
        ({"boots": [{"kind": "late"}]}, "kind 'late': one of error"),
        ({"deletes": [{"sort": "late"}]}, "sort"),
        ({"image_uploads": [{"kind": "late"}]}, "kind 'late': one of slow"),
        ({"quota": {"disks": 1}}, "disks"),
        ({"boot_seconds": "soon"}, "could not convert"),
    ],
)
def test_a_bad_setting_changes_nothing(changes: dict[str, object], text: str) -> None:
    knobs = Knobs()
    with pytest.raises(ValueError, match=text):
        knobs.update({"page_limit": 7} | changes)
    assert knobs == Knobs()
