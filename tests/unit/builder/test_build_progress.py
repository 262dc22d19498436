# SPDX-License-Identifier: Apache-2.0
"""Steps of a build, by what diskimage-builder writes."""

from __future__ import annotations

import pytest

from nodepool.builder.progress import BuildProgress, Step, step_of

TIME = "2026-01-02 03:04:05.678 | "


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dib-run-parts Running /tmp/dib_build.1fX/hooks/extra-data.d/20-manifest-dir", "extra-data"),
        (f"{TIME}dib-run-parts Running /tmp/in_target.d/pre-install.d/00-fix.local", "pre-install"),
        (f"{TIME}dib-run-parts Running /tmp/nodepool-a.d/dib_build/hooks/root.d/08-debootstrap", "root"),
        (f"{TIME}Converting image using qemu-img convert", "converting"),
        (f"{TIME}Image file /images/debian-0123.qcow2 created...", "finishing"),
        (f"{TIME}Build completed successfully", "completed"),
        (f"{TIME}+ diskimage_builder/lib/img-functions:156 echo 'Converting image using qemu-img convert'", None),
        (f"{TIME}dib-run-parts 00-fix completed", None),
        ("", None),
        (TIME, None),
    ],
)
def test_step_of(line: str, expected: str | None) -> None:
    assert step_of(line) == expected


def test_durations() -> None:
    """A step ends when another one begins; scripts of one phase are one step."""
    progress = BuildProgress(100.0)
    assert progress.step == "starting"
    assert progress.read("dib-run-parts Running /a/root.d/10-a", 101.0)
    assert not progress.read("dib-run-parts Running /a/root.d/20-b", 105.0)
    assert not progress.read("anything", 106.0)
    assert progress.read("Converting image using qemu-img convert", 111.0)
    assert (progress.step, progress.since) == ("converting", 111.0)
    progress.end(110.0)
    assert progress.ended == [Step("starting", 1.0), Step("root", 10.0), Step("converting", 0.0)]
