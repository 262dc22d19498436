# SPDX-License-Identifier: Apache-2.0
"""``nodepool-tls``: what it makes, what it says, and what it refuses."""

from __future__ import annotations

import os
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from nodepool.clock import wall_time
from nodepool.cmd import tls
from nodepool.cmd.tls import Authority

DAY = 86400


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "zk-tls"


def run(place: Path, *arguments: str) -> int:
    return tls.main(["-d", str(place), *arguments])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def made(place: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """With an authority, a server and a client."""
    assert run(place, "init") == 0
    assert run(place, "server", "zk1.example.com", "localhost", "127.0.0.1", "::1") == 0
    assert run(place, "client", "nodepool") == 0
    capsys.readouterr()
    return place


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_files(made: Path) -> None:
    """Keys are for their owner only."""
    assert mode(made) == mode(made / "servers") == mode(made / "clients") == 0o700
    secret = ["ca.key", "servers/zk1.example.com.pem", "clients/nodepool.key"]
    assert [mode(made / name) for name in secret] == [0o600] * 3
    assert [mode(made / name) for name in ("ca.pem", "clients/nodepool.pem")] == [0o644] * 2
    assert not [path for path in made.rglob("*") if path.name.endswith(".new")]


def test_keys_are_never_readable_by_others(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with an umask that lets everybody read, and also before all is written."""
    seen: list[int] = []
    opened = os.open

    def note(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = opened(path, flags, mode)
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    old = os.umask(0)
    try:
        with monkeypatch.context() as patched:
            patched.setattr("nodepool.cmd.tls.os.open", note)
            run(made, "client", "zuul")
            run(made, "renew", "--all")
    finally:
        os.umask(old)
    assert set(seen) == {0o600}


def test_it_says_what_to_put_where(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodepool and Zuul have their files in places of their own."""
    capsys.readouterr()
    run(made, "client", "zuul-executor")
    told = capsys.readouterr().out
    assert f"{made}/clients/zuul-executor.key  ->  /etc/zuul/zk-client.key" in told
    assert "  tls_ca=/etc/zuul/zk-ca.pem" in told
    assert "/etc/nodepool" not in told
    run(made, "client", "l2")
    told = capsys.readouterr().out
    assert f"{made}/clients/l2.pem  ->  /etc/nodepool/zk-client.pem" in told
    assert "    key: /etc/nodepool/zk-client.key" in told
    assert "/etc/zuul" not in told


def test_what_is_in_them(made: Path) -> None:
    """Servers of an ensemble are each other's clients; the key of a server is in the file of its certificate."""
    server = certificate(made / "servers" / "zk1.example.com.pem")
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["zk1.example.com", "localhost", "127.0.0.1", "::1"]
    usages = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert {usage._name for usage in usages} == {"serverAuth", "clientAuth"}
    client = certificate(made / "clients" / "nodepool.pem")
    usages = client.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [usage._name for usage in usages] == ["clientAuth"]
    assert 824 * DAY < (server.not_valid_after_utc - server.not_valid_before_utc).total_seconds() < 826 * DAY
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(made / "ca.pem")
    context.load_cert_chain(made / "clients" / "nodepool.pem", made / "clients" / "nodepool.key")
    context.load_cert_chain(made / "servers" / "zk1.example.com.pem")


def trusted_by_openssl(made: Path) -> None:
    for name in ("servers/zk1.example.com.pem", "clients/nodepool.pem"):
        command = ["openssl", "verify", "-x509_strict", "-CAfile", str(made / "ca.pem"), str(made / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


def test_openssl_trusts_them(made: Path) -> None:
    trusted_by_openssl(made)


def test_says_what_to_put_where(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(place, "init")
    assert "who has it can make certificates" in capsys.readouterr().out
    run(place, "server", "zk1")
    told = capsys.readouterr().out
    assert f"{place}/servers/zk1.pem  ->  /etc/zookeeper/tls/server.pem" in told
    assert "ssl.clientAuth=need" in told
    run(place, "client", "nodepool")
    told = capsys.readouterr().out
    assert "/etc/nodepool/zk-client.key  (owner root, group nodepool, mode 0640)" in told
    assert "    key: /etc/nodepool/zk-client.key" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init"], "has an authority already"),
        (["server", "zk1.example.com"], "has a certificate already"),
        (["client", "../x"], "cannot be a name"),
        (["client", ""], "cannot be a name"),
        (["server", "zk2", "a b"], "neither the name nor the address"),
        (["renew", "nobody"], "no server or client is called nobody"),
        (["drop-old-authority"], "there is no old authority"),
        (["new-authority"], "is called"),
    ],
)
def test_mistakes(made: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    """One clear line, exit status 1, and nothing is changed."""
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    assert run(made, *arguments) == 1
    assert words in capsys.readouterr().err
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("arguments", [["server", "zk1"], ["client", "c"], ["list"], ["renew"], ["drop-old-authority"]])
def test_without_an_authority(place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(place, *arguments) == 1
    assert "nodepool-tls init makes one" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["0", "-1", "99999999", "soon"])
def test_days_that_are_none(made: Path, days: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(made, "client", "c", "--days", days)
    assert ended.value.code == 2


def test_files_that_make_no_sense(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "ca.key").write_text("nonsense")
    assert run(made, "client", "c") == 1
    assert "ca.key cannot be read" in capsys.readouterr().err
    (made / "clients" / "nodepool.pem").write_text("nonsense")
    assert run(made, "list") == 1
    assert "nodepool.pem has no certificate" in capsys.readouterr().err


def test_renew(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The key, the names, the owner and the mode stay."""
    key, file = made / "clients" / "nodepool.key", made / "clients" / "nodepool.pem"
    server = made / "servers" / "zk1.example.com.pem"
    file.chmod(0o640)
    server.chmod(0o400)
    old, old_key, old_server = certificate(file), key.read_bytes(), server.read_bytes()
    assert run(made, "renew") == 0
    assert "Nothing to do" in capsys.readouterr().out
    assert run(made, "renew", "nodepool", "zk1.example.com", "--days", "30") == 0
    new = certificate(file)
    assert new.serial_number != old.serial_number
    assert new.public_key() == old.public_key()
    assert key.read_bytes() == old_key
    assert (mode(file), mode(server)) == (0o640, 0o400)
    assert server.read_bytes().partition(b"-----BEGIN CERT")[0] == old_server.partition(b"-----BEGIN CERT")[0]
    capsys.readouterr()
    assert run(made, "renew") == 0
    assert "Wrote" in capsys.readouterr().out, "30 days are within 60"


def test_list(made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(made, "list") == 0
    told = capsys.readouterr().out
    assert "zk1.example.com, localhost, 127.0.0.1, ::1" in told
    assert "824 days" in told
    later = wall_time() + 900 * DAY
    monkeypatch.setattr(tls, "wall_time", lambda: later)
    run(made, "list")
    assert capsys.readouterr().out.count("expired") == 2


def test_change_of_the_authority(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Old and new are trusted at each step; the old authority goes only when nothing needs it."""
    old = (made / "ca.pem").read_bytes()
    assert run(made, "new-authority", "--name", "second") == 0
    [kept] = made.glob("ca.key.*")
    assert mode(kept) == 0o600
    assert (made / "ca.pem").read_bytes().endswith(old)
    assert run(made, "new-authority") == 1
    assert [one.current for one in Authority(made).certificates()] == [True, False, False, False]
    trusted_by_openssl(made)
    assert run(made, "drop-old-authority") == 1
    assert "server zk1.example.com, client nodepool" in capsys.readouterr().err
    assert run(made, "renew") == 0, "what is of the old one is renewed, however long it is good for"
    trusted_by_openssl(made)
    assert run(made, "drop-old-authority") == 0
    assert old not in (made / "ca.pem").read_bytes()
    assert all(one.current for one in Authority(made).certificates())
    trusted_by_openssl(made)


def test_change_that_cannot_begin(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without links, or on a full disk: all is as before, and it can be tried again."""
    before = {path.name: path.read_bytes() for path in (made / "ca.pem", made / "ca.key")}

    def no_links(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", no_links)
        assert run(made, "new-authority", "--name", "second") == 1
    assert "Operation not permitted" in capsys.readouterr().err
    assert {name: (made / name).read_bytes() for name in before} == before
    assert run(made, "client", "zuul") == 0
    assert run(made, "new-authority", "--name", "second") == 0
    trusted_by_openssl(made)
