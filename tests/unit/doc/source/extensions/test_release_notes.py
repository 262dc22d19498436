# SPDX-License-Identifier: Apache-2.0
"""The page of release notes has each fragment, once, under the heading of its type."""

from __future__ import annotations

from doc.source.extensions import release_notes


def test_each_fragment_is_shown() -> None:
    page = release_notes.expand(".. release-notes::\n")
    files = sorted((release_notes.ROOT / "releasenotes").glob("*.rst"))
    assert files
    assert {path.suffixes[-2].removeprefix(".") for path in files} <= set(release_notes.types())
    assert page.count("\n* ") == len(files)
    assert list(release_notes.types().values()) == [
        line for line in page.splitlines() if line in {*release_notes.types().values()}
    ]
