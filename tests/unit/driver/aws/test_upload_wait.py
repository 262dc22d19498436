# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.image_store` (AW-17)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudQuota
from nodepool.driver.framework.uploads import UploadGivenUp, UploadInterrupted
from nodepool.exceptions import ImageCreateException
from tests.unit.driver.aws.image_support import ImageRig

FULL = CloudQuota("too many", code="ResourceCountLimitExceeded")


@pytest.fixture
def rig(tmp_path: Path) -> ImageRig:
    return ImageRig(tmp_path)


def refused(times: int) -> list[Exception | str]:
    return [*[FULL] * times, "begun"]


def begin(answers: list[Exception | str]) -> str:
    answer = answers.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_first_refusal(rig: ImageRig) -> None:
    """AW-17: without image-import-timeout it is an error, which says what to set."""
    with pytest.raises(ImageCreateException, match=r"too many; set image-import-timeout"):
        rig.wait(rig.job()).when_allowed(lambda: begin(refused(1)), None)


def test_wait_for_the_limit(rig: ImageRig) -> None:
    """AW-17: every 30 s, for image-import-timeout."""
    answers = refused(3)
    assert rig.wait(rig.job()).when_allowed(lambda: begin(answers), 100.0) == "begun"
    assert sum(rig.stopped.pauses) == 90
    answers = refused(10)
    with pytest.raises(ImageCreateException, match=r"for image-import-timeout \(100 s\): too many"):
        rig.wait(rig.job()).when_allowed(lambda: begin(answers), 100.0)
    assert sum(rig.stopped.pauses) == 190
    assert len(answers) == 11 - 5


def test_given_up_meanwhile(rig: ImageRig) -> None:
    """U-12: an upload that waits hears that it was overtaken, or that the provider ends."""

    def overtaken(done: int, total: int) -> None:
        raise UploadGivenUp(f"{done} of {total}")

    with uploads.watched(overtaken):
        wait = rig.wait(rig.job())
    with pytest.raises(UploadGivenUp, match="0 of 7"):
        wait.when_allowed(lambda: begin(refused(3)), 100.0)
    with uploads.watched(lambda done, total: None, lambda: overtaken(1, 1)):
        wait = rig.wait(rig.job())
    with pytest.raises(UploadGivenUp, match="1 of 1"):
        wait.when_allowed(lambda: begin([]), None)
    rig.stopped.set()
    with pytest.raises(UploadInterrupted):
        wait.when_allowed(lambda: begin(refused(3)), 100.0)


def test_looks(rig: ImageRig) -> None:
    """They end with an error that says what took too long."""
    with pytest.raises(ImageCreateException, match="upload: the import took more than 60 s"):
        list(rig.wait(rig.job()).looks("the import", 60.0))
    assert max(rig.stopped.pauses) == 1, "it hears soon that nobody wants the upload"


def test_progress(rig: ImageRig) -> None:
    """Never more than the whole, and again with each look."""
    seen: list[tuple[int, int]] = []
    with uploads.watched(lambda done, total: seen.append((done, total))):
        wait = rig.wait(rig.job())
    wait.sent(3)
    wait.sent(30)
    next(wait.looks("it", 60.0))
    assert seen == [(3, 7), (7, 7), (7, 7)]
