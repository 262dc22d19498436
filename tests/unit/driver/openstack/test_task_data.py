# SPDX-License-Identifier: Apache-2.0
"""Bytes that openstacksdk sends are counted."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from requests.utils import super_len

from nodepool.driver.framework import uploads
from nodepool.driver.framework.uploads import UploadGivenUp
from nodepool.driver.openstack.images import REPORT_BYTES, SentData
from tests.support.wait import DEADLINE_SECONDS

SIZE = 3 * REPORT_BYTES


def bodies(sent: SentData, *sources: Any) -> list[Any]:
    """What another function gets to send."""
    found: list[Any] = []
    put = sent.watch(lambda url, data=None, headers=None: found.append(data))
    for source in sources:
        put("url", data=source, headers={})
    return found


def test_what_is_sent_again_counts_once() -> None:
    """Two parts at once, one of which is repeated; what is no file is passed on."""
    told: list[int] = []
    with uploads.watched(lambda done, total: told.append(done)):
        sent = SentData(SIZE)
    first, second, manifest = bodies(sent, io.BytesIO(bytes(2 * REPORT_BYTES)), io.BytesIO(bytes(REPORT_BYTES)), "text")
    assert manifest == "text"
    # As requests finds the length, which reads nothing.
    assert super_len(first) == 2 * REPORT_BYTES
    assert told == []
    first.read(REPORT_BYTES)
    first.seek(0)
    assert first.tell() == 0
    first.read()
    second.read(10)
    second.read()
    assert second.read() == b""
    assert told == [REPORT_BYTES, 0, 2 * REPORT_BYTES, SIZE, SIZE]


def test_parts_that_report_at_once() -> None:
    """A part that is held up does not tell less than another one has told before."""
    told: list[int] = []
    first_is_told, go_on = threading.Event(), threading.Event()

    def listen(done: int, total: int) -> None:
        if not first_is_told.is_set():
            first_is_told.set()
            assert go_on.wait(DEADLINE_SECONDS)
        told.append(done)

    with uploads.watched(listen):
        sent = SentData(SIZE)
    parts = bodies(sent, *(io.BytesIO(bytes(REPORT_BYTES)) for _ in range(3)))
    threads = [threading.Thread(target=part.read) for part in parts]
    threads[0].start()
    assert first_is_told.wait(DEADLINE_SECONDS)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert told == sorted(told)
    assert told[-1] == SIZE


def test_given_up() -> None:
    """U-9: parts that were begun, or wait for their turn, end, too."""

    def stop(done: int, total: int) -> None:
        raise UploadGivenUp(f"at {done}")

    with uploads.watched(stop):
        sent = SentData(SIZE)
    first, second = bodies(sent, io.BytesIO(bytes(SIZE)), io.BytesIO(bytes(SIZE)))
    first.read(10)
    with pytest.raises(UploadGivenUp, match=f"at {REPORT_BYTES + 10}") as caught:
        second.read(REPORT_BYTES)
    assert sent.given_up is caught.value
    with pytest.raises(UploadGivenUp):
        first.read(10)
