# SPDX-License-Identifier: Apache-2.0
"""WP-66: clients that hold a thousand connections of a launcher, while it makes servers in a cloud."""

from __future__ import annotations

import os
import resource
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx2 as httpx
import pytest

from nodepool.web.server import MOST_OF_DAEMON
from tests.support.certificates import make_certificates
from tests.support.cloud_site import CloudSite
from tests.support.launcher_config import write_config
from tests.support.openstack_place import Place
from tests.support.serving_process import ServingProcess
from tests.support.wait import wait_for

HELD: Final = 1000
#: What a client sends that stops in the TLS handshake: the begin of a record of 512 bytes.
HELLO: Final = b"\x16\x03\x01\x02\x00\x01"
REQUESTS: Final = 40
#: Key of ``webapp.tls`` -> suffix of its file.
TLS_FILES: Final = (("cert", "pem"), ("key", "key"))
#: File descriptors that the launcher may have: fewer than there are connections.
MOST_FILES: Final = 400


@contextmanager
def held(port: int, sent: bytes) -> Iterator[None]:
    """So many connections of one client, each of which sends this and waits. One that is closed is opened again."""
    stop = threading.Event()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * HELD)), hard))
    there: list[socket.socket] = []
    filled = threading.Event()

    def connect() -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port), 30)
        made.sendall(sent)
        return made

    def hold() -> None:
        while len(there) < HELD:
            there.append(connect())
        filled.set()
        poll = select.poll()
        for one in there:
            poll.register(one, select.POLLIN)
        by_number = {one.fileno(): number for number, one in enumerate(there)}
        while not stop.wait(0.02):
            for number, _ in poll.poll(0):
                poll.unregister(number)
                place = by_number.pop(number)
                there[place].close()
                there[place] = connect()
                by_number[there[place].fileno()] = place
                poll.register(there[place], select.POLLIN)

    thread = threading.Thread(target=hold, name="held connections")
    thread.start()
    try:
        assert filled.wait(60)
        yield
    finally:
        stop.set()
        thread.join()
        for one in there:
            one.close()


@pytest.mark.parametrize("sent", [b"", HELLO], ids=["they send nothing", "they stop in the TLS handshake"])
def test_launcher_serves_on(place: Place, site: CloudSite, sent: bytes) -> None:
    """Requests are served, no file is missing for cloud and ZooKeeper, and probes get their answers."""
    webapp: dict[str, Any] = {"listen_address": "127.0.0.1", "port": 0}
    if sent:
        make_certificates(site.directory / "tls")
        webapp["tls"] = {name: str(site.directory / "tls" / f"server.{suffix}") for name, suffix in TLS_FILES}
    # The image of the cloud alone is used.
    del place.section["diskimages"]
    config = site.directory / "nodepool.yaml"
    labels = [{"name": "small"}]
    extra = {"webapp": webapp, "labels": labels, "providers": [place.section]}
    write_config(config, site.zookeeper, site.chroot, [], extra=extra)
    launcher = ServingProcess("nodepool.cmd.launcher", config)
    launcher.start()
    try:
        url = httpx.URL(launcher.url)
        resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))
        wait_for("the pool is registered", site.znodes.pools)
        with held(url.port or 0, sent):
            requests = [site.znodes.submit(["small"]) for _ in range(REQUESTS)]
            files = 0

            def served() -> bool:
                nonlocal files
                files = max(files, len(os.listdir(f"/proc/{launcher.pid}/fd")))
                assert httpx.get(f"{url}/health/live", verify=False, timeout=10).status_code == 200
                return all(site.znodes.request_state(one) == "fulfilled" for one in requests)

            wait_for("all are served", served)
            assert MOST_OF_DAEMON < files < MOST_FILES
        assert "Too many open files" not in launcher.log_text()
        assert "Traceback" not in launcher.log_text()
    finally:
        launcher.stop()
