# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.progress: how far uploads are, and how fast."""

from __future__ import annotations

from nodepool.builder.progress import Meter, RunningUploads, UploadKey, UploadState

KEY = UploadKey("fedora", "b1", "cloud", "0000000001")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_speed() -> None:
    """Of the last seconds, not of all the time."""
    clock, told = Clock(), []
    meter = Meter(1000, lambda: told.append(clock.now), clock)
    assert meter.state() == UploadState(0, 1000, 0.0)
    for second in range(1, 31):
        clock.now = 100.0 + second
        meter.report(min(900, 10 * second if second <= 15 else 150 + 40 * (second - 15)), 1000)
    state = meter.state()
    assert (state.done, state.percent) == (750, 75.0)
    assert state.bytes_per_second == 40
    assert len(told) == 30


def test_listener_is_not_told_of_each_chunk() -> None:
    clock, told = Clock(), []
    meter = Meter(1000, lambda: told.append(1), clock)
    for number in range(60):
        clock.now += 0.01
        meter.report(number, 1000)
    assert len(told) == 1
    assert meter.state().done == 59


def test_begun_again() -> None:
    """A call that is repeated begins with the first byte."""
    clock = Clock()
    meter = Meter(100, lambda: None, clock)
    clock.now += 1
    meter.report(80, 100)
    clock.now += 1
    meter.report(0, 100)
    assert meter.state() == UploadState(0, 100, 0.0)
    clock.now += 1
    meter.report(20, 100)
    assert meter.state() == UploadState(20, 100, 20.0)


def test_empty_file() -> None:
    assert UploadState(0, 0, 0.0).percent == 0.0


def test_table() -> None:
    """As the status record has it; an upload that has ended is not there any more."""
    uploads, told = RunningUploads(), []
    uploads.on_change = lambda: told.append(len(uploads.states()))
    with uploads.running(KEY, 200) as meter:
        meter.report(50, 200)
        status = uploads.as_status()
        assert list(status) == ["fedora/b1/cloud/0000000001"]
        assert status[str(KEY)]["percent"] == 25.0
        assert status[str(KEY)]["size"] == 200
    assert uploads.as_status() == {}
    assert (told[0], told[-1]) == (1, 0)
