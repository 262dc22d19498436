# SPDX-License-Identifier: Apache-2.0
"""Bytes that are only counted, unless the reader sleeps."""

from __future__ import annotations

import select
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.zk.wire.threading_handler import WakeReader, WakeWriter

Wake = tuple[WakeReader, WakeWriter]


def socket_is_ready(reader: WakeReader) -> bool:
    return bool(select.select([reader], [], [], 0)[0])


def test_counted(wake: Wake) -> None:
    """However many: nobody waits."""
    reader, writer = wake
    assert not reader.readable()
    for _ in range(10_000):
        assert writer.send(b"\0") == 1
    for _ in range(10_000):
        assert reader.readable()
        assert reader.recv(1) == b"\0"
    assert not reader.readable()
    with pytest.raises(BlockingIOError):
        reader.recv(1)
    assert not socket_is_ready(reader)


def test_reader_that_sleeps(wake: Wake) -> None:
    """One byte wakes it; the others are counted."""
    reader, writer = wake
    reader.asleep = True
    writer.send(b"\0")
    assert socket_is_ready(reader)
    assert not reader.asleep
    writer.send(b"\0")
    reader.drain()
    assert not socket_is_ready(reader)
    assert len(reader.sent) == 2
    reader.drain()


def test_full_socket(wake: Wake) -> None:
    """Whoever sends does not wait: the reader wakes all the same."""
    reader, writer = wake
    for _ in range(10_000):
        reader.asleep = True
        assert writer.send(b"\0") == 1
    assert len(reader.sent) == 10_000
    while socket_is_ready(reader):
        reader.drain()


def test_use_while_its_thread_sleeps(wake: Wake) -> None:
    """By one thread at a time, and by none while the connection thread is at work."""
    reader, _ = wake
    assert not reader.borrow()
    reader.rest()
    assert reader.borrow()
    assert not reader.borrow()
    with ThreadPoolExecutor(1) as connection_thread:
        resumed = connection_thread.submit(reader.resume)
        assert not resumed.done()
        reader.give_back()
        resumed.result(30)
    assert not reader.borrow()
    reader.rest()
    assert reader.borrow()
    reader.give_back()


def test_woken_without_a_call(wake: Wake) -> None:
    """Once; nothing is counted. Nobody is woken who does not sleep."""
    reader, writer = wake
    writer.wake()
    assert not socket_is_ready(reader)
    reader.asleep = True
    writer.wake()
    assert socket_is_ready(reader)
    assert (reader.asleep, reader.readable()) == (False, False)
    reader.drain()


def test_closed(wake: Wake) -> None:
    """Kazoo answers a call with an error that comes after the end."""
    reader, writer = wake
    writer.close()
    with pytest.raises(OSError, match="closed"):
        writer.send(b"\0")
    assert not reader.readable()
