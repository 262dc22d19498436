# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.images"""

from __future__ import annotations

from nodepool.plan.images import WantedImages, WantedUpload


def test_users() -> None:
    use = WantedUpload("raw")
    wanted = WantedImages({}, {"a": {"debian": use}, "b": {}, "c": {"debian": use, "fedora": use}})
    assert wanted.users("debian") == {"a": use, "c": use}
    assert wanted.users("other") == {}
