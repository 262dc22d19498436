# SPDX-License-Identifier: Apache-2.0
"""K-2: whatever a host says in a key exchange, the scan gives keys or `ScanFailed`, and the keys are keys."""

from __future__ import annotations

import re
import socket
import threading

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodepool.driver.framework.keyscan import ScanFailed, scan
from tests.support.odd_hosts import OddHost

#: What may stand in a known_hosts file: two words, no line break.
KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+=*")
KEY_TYPES = (b"ssh-ed25519", b"rsa-sha2-512", b"ssh-rsa", b"ecdsa-sha2-nistp256")


def text(data: bytes) -> bytes:
    """A string of RFC 4251."""
    return len(data).to_bytes(4) + data


def packet(payload: bytes) -> bytes:
    padding = 8 - (len(payload) + 5) % 8 + 8
    return (len(payload) + padding + 1).to_bytes(4) + bytes([padding]) + payload + bytes(padding)


def kexinit(key_types: bytes) -> bytes:
    lists = [b"curve25519-sha256@libssh.org", key_types]
    lists += [b"aes128-ctr"] * 2 + [b"hmac-sha2-256"] * 2 + [b"none"] * 2 + [b""] * 2
    return b"\x14" + bytes(16) + b"".join(map(text, lists)) + b"\0" + bytes(4)


def ed25519(name: bytes = b"ssh-ed25519", key: bytes = bytes(32)) -> bytes:
    return text(name) + text(key)


def rsa(exponent: bytes, modulus: bytes) -> bytes:
    return text(b"ssh-rsa") + text(exponent) + text(modulus)


def reply(key: bytes, point: bytes = b"\x09" + bytes(31), signature: bytes = b"") -> bytes:
    return b"\x1f" + text(key) + text(point) + text(signature)


HALF_TEXTS = st.binary(max_size=40) | st.binary(max_size=40).map(text)
KEYS = (
    st.sampled_from([ed25519(), ed25519(b"ssh-ed25519\nhost ssh-rsa AAAA"), rsa(b"\3", b"\x7f" * 128), rsa(b"", b"")])
    | st.builds(ed25519, st.sampled_from([*KEY_TYPES, b"\xff", b""]), st.binary(max_size=40))
    | st.builds(rsa, st.binary(max_size=4), st.binary(max_size=130))
    | st.lists(HALF_TEXTS, max_size=4).map(b"".join)
)
PAYLOADS = (
    st.builds(reply, KEYS, st.sampled_from([b"\x09" + bytes(31), bytes(32), b""]) | st.binary(max_size=40), HALF_TEXTS)
    | st.builds(
        lambda kind, rest: bytes([kind]) + rest, st.integers(0, 255), st.lists(HALF_TEXTS, max_size=3).map(b"".join)
    )
    | st.binary(max_size=60)
)


def check(data: bytes) -> None:
    """Let a host say this, and then nothing more."""
    ended = threading.Event()

    def say(host: OddHost, connection: socket.socket) -> None:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                continue
        finally:
            # No second attempt.
            ended.set()

    with OddHost(say) as host:
        try:
            found = scan("127.0.0.1", host.port, timeout=20, retry_connect=False, cancelled=ended)
        except ScanFailed as error:
            check_reason(str(error))
            return
    assert all(KEY.fullmatch(key) for key in found.host_keys)


def check_reason(reason: str) -> None:
    """It is logged, and stored nowhere."""
    assert len(reason.splitlines()) == 1
    assert len(reason) < 1000


@settings(deadline=None, max_examples=60)
@example(b"ssh-ed25519", [reply(ed25519())])
@example(b"ssh-ed25519", [reply(ed25519(), bytes(32))])
@example(b"ssh-rsa", [reply(rsa(b"", b""))])
@example(b"\xff", [])
@example(b"x\ny", [])
@example(b"ssh-ed25519", [b"\x01" + bytes(4) + text(b"go\r\naway\x1b[2J") + text(b"")])
@example(b"ssh-ed25519", [b"\x01" + bytes(4) + text(b"x" * 30000) + text(b"")])
@example(b"ssh-ed25519", [b""])
@given(st.sampled_from(KEY_TYPES) | st.binary(max_size=20), st.lists(PAYLOADS, max_size=3))
def test_key_exchange(key_types: bytes, payloads: list[bytes]) -> None:
    check(b"SSH-2.0-x\r\n" + b"".join(map(packet, [kexinit(key_types), *payloads])))


@settings(deadline=None, max_examples=25)
@example(b"SSH-1.5-old\r\n")
@example(b"SSH-2.0-\xff\xfe\r\n" + bytes(100))
@example(b"x" * 20_000)
@given(st.binary(max_size=100) | st.binary(max_size=60).map(lambda data: b"SSH-2.0-" + data))
def test_any_bytes(data: bytes) -> None:
    check(data)
