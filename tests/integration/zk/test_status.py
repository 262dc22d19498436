# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.status: what daemons say they are doing."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from kazoo.exceptions import NoNodeError, SessionExpiredError

from nodepool.model.record import InvalidRecord
from nodepool.model.status import HostStatus, LabelStatus, PoolStatus
from nodepool.zk import status
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.status import StatusWriter
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

PATH = "/nodepool/status/builder/host-1"
SECONDS = 20.0


class Znode:
    """Waits for what is stored."""

    def __init__(self, znodes: PoolZnodes) -> None:
        self._znodes = znodes
        self.versions: list[int] = []

    def until(self, wanted: Callable[[object], bool]) -> None:
        changed = threading.Event()
        while True:
            changed.clear()
            self._znodes.kazoo.exists(PATH, watch=lambda _: changed.set())
            if wanted(self._look()):
                return
            assert changed.wait(SECONDS)

    def _look(self) -> object:
        """What is stored; its version is noted, which belongs to the same moment."""
        try:
            data, stat = self._znodes.kazoo.get(PATH)
        except NoNodeError:
            return None
        if not self.versions or self.versions[-1] != stat.version:
            self.versions.append(stat.version)
        return status.decode(data)


class Owner(Znode):
    """The session that the znode belongs to; None = there is none."""

    def _look(self) -> object:
        stat = self._znodes.kazoo.exists(PATH)
        return None if stat is None else stat.ephemeralOwner


@pytest.fixture
def writer(client: ZooKeeperClient) -> Iterator[StatusWriter]:
    made = StatusWriter(client, pause_seconds=0.05)
    yield made
    made.close()


def test_last_status_is_written(writer: StatusWriter, znodes: PoolZnodes, client: ZooKeeperClient) -> None:
    """Not each, but the last; and it goes with the session."""
    znode = Znode(znodes)
    for percent in range(101):
        writer.set("builder", "host-1", {"percent": percent})
    znode.until(lambda found: found == {"percent": 100})
    assert znode.versions[-1] < 50
    assert znodes.kazoo.exists(PATH).ephemeralOwner == client.kazoo.client_id[0]
    assert status.read_all(client, "builder") == {"host-1": {"percent": 100}}
    assert status.read_all(client, "launcher") == {}
    writer.close()
    assert not znodes.kazoo.exists(PATH)
    writer.set("builder", "host-1", {"percent": 5})
    assert not znodes.kazoo.exists(PATH)


def test_nothing_is_written_while_nothing_changes(writer: StatusWriter, znodes: PoolZnodes) -> None:
    znode = Znode(znodes)
    writer.set("builder", "host-1", {"a": 1})
    znode.until(lambda found: found == {"a": 1})
    for _ in range(10):
        writer.set("builder", "host-1", {"a": 1})
    writer.set("builder", "host-1", {"a": 2})
    znode.until(lambda found: found == {"a": 2})
    assert znode.versions == [0, 1]


def test_one_that_was_removed_is_written_again(writer: StatusWriter, znodes: PoolZnodes) -> None:
    znode = Znode(znodes)
    writer.set("builder", "host-1", {"a": 1})
    znode.until(lambda found: found == {"a": 1})
    znodes.kazoo.delete(PATH)
    writer.set("builder", "host-1", {"a": 2})
    znode.until(lambda found: found == {"a": 2})


def test_lost_session(
    writer: StatusWriter, znodes: PoolZnodes, client: ZooKeeperClient, zookeeper: ZooKeeperServer
) -> None:
    """It is there again in the new session, although nothing has changed."""
    znode = Znode(znodes)
    writer.set("builder", "host-1", {"a": 1})
    znode.until(lambda found: found == {"a": 1})
    session = client.kazoo.client_id
    expire_session(zookeeper.plain_hosts(), session)
    Owner(znodes).until(lambda owner: owner not in (None, session[0]))


def test_left_over_of_an_ended_session(writer: StatusWriter, znodes: PoolZnodes) -> None:
    znodes.kazoo.create(PATH, b"{}", makepath=True)
    writer.set("builder", "host-1", {"a": 1})
    Znode(znodes).until(lambda found: found == {"a": 1})


def test_bad_record(znodes: PoolZnodes, client: ZooKeeperClient, caplog: pytest.LogCaptureFixture) -> None:
    znodes.kazoo.create(f"{PATH}-bad", b"bad", makepath=True)
    znodes.kazoo.create(PATH, b'{"a": 1}')
    assert status.read_all(client, "builder") == {"host-1": {"a": 1}}
    assert "Ignoring" in caplog.text


def test_close_without_a_status(client: ZooKeeperClient) -> None:
    StatusWriter(client).close()


def test_close_while_a_call_waits(
    writer: StatusWriter, client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call waits for a connection that is away, which may be for ever; a daemon that stops does not."""
    waits, go_on = threading.Event(), threading.Event()

    def create(*_: object, **__: object) -> None:
        waits.set()
        assert go_on.wait(SECONDS)

    monkeypatch.setattr(status, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(client.kazoo, "create", create)
    writer.set("builder", "host-1", {"a": 1})
    assert waits.wait(SECONDS)
    closing = threading.Thread(target=writer.close)
    closing.start()
    closing.join(SECONDS / 2)
    in_time = not closing.is_alive()
    go_on.set()
    closing.join()
    assert in_time
    monkeypatch.setattr(status, "CLOSE_SECONDS", SECONDS)
    writer.close()


def test_long_one_is_compressed(writer: StatusWriter, znodes: PoolZnodes, client: ZooKeeperClient) -> None:
    """Readers take both."""
    long = {"text": "x" * 10_000}
    writer.set("builder", "host-1", long)
    writer.set("builder", "host-2", {"a": 1})
    wait_for("both are there", lambda: set(status.read_all(client, "builder")) == {"host-1", "host-2"})
    assert status.read_all(client, "builder") == {"host-1": long, "host-2": {"a": 1}}
    assert len(znodes.kazoo.get(PATH)[0]) < 200


def test_too_long(writer: StatusWriter) -> None:
    with pytest.raises(ValueError, match="at most"):
        writer.set("builder", "host-1", {"text": "x" * status.MAX_BYTES})


@pytest.mark.parametrize("data", [b"", b"\x78nothing", b"[]", zlib.compress(b"[]"), zlib.compress(b'{"a": 1}')[:-8]])
def test_what_cannot_be_read(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        status.decode(data)


def test_bomb() -> None:
    """A few bytes that stand for many are not unpacked."""
    with pytest.raises(InvalidRecord):
        status.decode(zlib.compress(b'{"a": "' + b"x" * 50_000_000 + b'"}'))


def test_removed_one(writer: StatusWriter, znodes: PoolZnodes) -> None:
    """At once; others stay, and it may come back."""
    znode = Znode(znodes)
    writer.set("builder", "host-1", {"a": 1})
    writer.set("builder", "host-2", {"a": 1})
    znode.until(lambda found: found == {"a": 1})
    writer.remove("builder", "host-1")
    writer.remove("builder", "unknown")
    znode.until(lambda found: found is None)
    wait_for("the other one is there", lambda: znodes.children("/nodepool/status/builder") == ["host-2"])
    writer.set("builder", "host-1", {"a": 2})
    znode.until(lambda found: found == {"a": 2})


def test_one_thread_for_all(client: ZooKeeperClient) -> None:
    """W-8: hundreds of pools have one writer."""
    writer = StatusWriter(client)
    before = threading.active_count()
    for number in range(50):
        writer.set("pool", f"pool-{number}", {"a": 1})
    assert threading.active_count() == before + 1
    wait_for("all are there", lambda: len(status.read_all(client, "pool")) == 50)
    writer.close()
    assert status.read_all(client, "pool") == {}


def test_pause_after_a_failure(
    client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """W-8: what fails is tried again, not at once; the others are written meanwhile."""
    tries: list[str] = []
    create = client.kazoo.create

    def refuse(path: str, *args: object, **options: object) -> object:
        tries.append(path)
        if path.endswith("bad"):
            raise SessionExpiredError
        return create(path, *args, **options)

    monkeypatch.setattr(client.kazoo, "create", refuse)
    writer = StatusWriter(client, pause_seconds=600)
    writer.set("pool", "bad", {"a": 1})
    wait_for("it was tried", lambda: tries)
    writer.set("pool", "good", {"a": 1})
    wait_for("the other one is there", lambda: status.read_all(client, "pool") == {"good": {"a": 1}})
    writer.close()
    assert [path for path in tries if path.endswith("bad")] == ["/nodepool/status/pool/bad"]
    assert "Status /nodepool/status/pool/bad was not written" in caplog.text


def test_text_with_half_a_character(writer: StatusWriter, client: ZooKeeperClient) -> None:
    """Such texts come from names of files and from errors of clouds."""
    writer.set("builder", "host-1", {"text": "\udc80"})
    wait_for("it is there", lambda: status.read_all(client, "builder") == {"host-1": {"text": "\udc80"}})


def test_dataclass(writer: StatusWriter, client: ZooKeeperClient) -> None:
    told = PoolStatus(id="1", hosts=(HostStatus("a", nodes=["7"]),), labels={"gpu": LabelStatus("label.broken")})
    writer.set("pool", "1", told)
    wait_for("it is there", lambda: bool(status.read_all(client, "pool")))
    assert PoolStatus.of_record(status.read_all(client, "pool")["1"]) == replace(
        told, hosts=(replace(told.hosts[0], nodes=("7",)),)
    )
