# SPDX-License-Identifier: Apache-2.0
"""Keys of hosts that misbehave."""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Any

import pytest

from nodepool.driver.framework.keyscan import ScanFailed, scan
from tests.support import odd_hosts
from tests.support.odd_hosts import OddHost


def others() -> set[threading.Thread]:
    """Threads that are not those of hosts."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("OddHost")}


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (odd_hosts.closes, "SSH negotiation failed"),
        (odd_hosts.speaks_http, "SSH negotiation failed"),
        (odd_hosts.sends_garbage, "sent more than 256 KiB"),
        # Whichever notices first: the scan, or paramiko's wait for the banner, which gets the time that is left.
        *(
            (behave, "no time left|gave up after 0.5 s")
            for behave in (
                *(odd_hosts.is_silent, odd_hosts.drips),
                *(odd_hosts.announces_a_huge_packet, odd_hosts.stops_after_banner),
            )
        ),
    ],
)
def test_hosts_that_misbehave(behave: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """K-3, K-5: garbage and silence end in one line after the timeout: no thread, descriptor or traceback is left."""
    caplog.set_level(logging.DEBUG)
    threads = others()
    # Its first attempt says what is wrong; the last of many may end because the time is over.
    once, garbage = threading.Event(), behave is odd_hosts.sends_garbage

    def serve(host: OddHost, connection: socket.socket) -> None:
        try:
            behave(host, connection)
        finally:
            if garbage:
                once.set()

    with OddHost(serve) as host:
        descriptors = len(os.listdir("/proc/self/fd"))
        with pytest.raises(ScanFailed, match=reason) as failure:
            scan("127.0.0.1", host.port, timeout=30 if garbage else 0.5, cancelled=once)
        assert others() == threads
    assert len(os.listdir("/proc/self/fd")) < descriptors
    assert "\n" not in str(failure.value)
    assert failure.value.statsd_key == "error.keyscan"
    assert not caplog.records
