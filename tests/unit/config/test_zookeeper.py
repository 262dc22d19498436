# SPDX-License-Identifier: Apache-2.0
"""The ZooKeeper part (reference/configuration 2), as commands read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.loader import load_config, load_images, load_zookeeper
from nodepool.config.zookeeper import ZooKeeperServer
from nodepool.exceptions import ConfigError

GOOD: dict[str, Any] = {
    "zookeeper-servers": [{"host": "zk1"}],
    "zookeeper-tls": {"cert": "/c", "key": "/k", "ca": "/a"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nodepool.yaml"


def write(file: Path, **changes: Any) -> str:
    data = {**GOOD, **{key.replace("_", "-"): value for key, value in changes.items()}}
    file.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return str(file)


def test_defaults(file: Path) -> None:
    """Port 2281, no chroot, 10 s."""
    settings = load_zookeeper(write(file))
    assert settings.zookeeper_servers == [ZooKeeperServer("zk1", 2281, None)]
    assert settings.zookeeper_timeout == 10.0
    assert (settings.zookeeper_tls_cert, settings.zookeeper_tls_key) == ("/c", "/k")
    assert settings.zookeeper_tls_ca == "/a"


def test_images_without_providers(file: Path) -> None:
    """Commands about images look at no provider, whatever is wrong with it."""
    path = write(file, diskimages=[{"name": "debian"}], providers=[{"name": "p", "driver": "none-such"}, 7])
    config = load_images(path)
    assert (list(config.diskimages), config.providers) == (["debian"], {})
    assert config.zookeeper_servers == [ZooKeeperServer("zk1", 2281, None)]
    with pytest.raises(ConfigError, match="diskimages"):
        load_images(write(file, diskimages=7))


def test_several_servers(file: Path) -> None:
    servers = [{"host": "a", "port": 1, "chroot": "/x"}, {"host": "::1", "chroot": ""}, {"host": "b", "chroot": None}]
    settings = load_zookeeper(write(file, zookeeper_servers=servers))
    assert settings.zookeeper_servers == [
        ZooKeeperServer("a", 1, "/x"),
        ZooKeeperServer("::1"),
        ZooKeeperServer("b"),
    ]
    assert repr(settings.zookeeper_servers[0]) == "<ZooKeeperServer a:1/x>"


@pytest.mark.parametrize("value", [10, 10.5, 1])
def test_timeout(file: Path, value: float) -> None:
    """int and float are both fine."""
    settings = load_zookeeper(write(file, zookeeper_timeout=value))
    assert settings.zookeeper_timeout == value
    assert isinstance(settings.zookeeper_timeout, float)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"zookeeper_servers": []},
            "zookeeper-servers: expected a list of servers, each with host and port, got an empty",
        ),
        ({"zookeeper_servers": "zk1"}, "zookeeper-servers: expected a list of servers"),
        ({"zookeeper_servers": None}, "zookeeper-servers: required, but missing: a list of servers"),
        (
            {"zookeeper_servers": ["zk1"]},
            "zookeeper-servers[0]: expected a mapping with host, port and chroot, got 'zk1'",
        ),
        ({"zookeeper_servers": [{"port": 1}]}, "zookeeper-servers[0]: host is required"),
        ({"zookeeper_servers": [{"host": 7}]}, "zookeeper-servers[0].host: host is required"),
        ({"zookeeper_servers": [{"host": " "}]}, "zookeeper-servers[0].host: host is required"),
        (
            {"zookeeper_servers": [{"host": "zk1..example.com"}]},
            "zookeeper-servers[0].host: expected the name or address of a server, got 'zk1..example.com': ",
        ),
        ({"zookeeper_servers": [{"host": "a", "port": 0}]}, "[0].port: expected a port, 1 to 65535, got 0"),
        ({"zookeeper_servers": [{"host": "a", "port": 65536}]}, "[0].port: expected a port, 1 to 65535, got 65536"),
        ({"zookeeper_servers": [{"host": "a", "port": "x"}]}, "[0].port: expected a port, 1 to 65535, got 'x'"),
        ({"zookeeper_servers": [{"host": "a", "port": True}]}, "[0].port: expected a port, 1 to 65535, got true"),
        ({"zookeeper_servers": [{"host": "a", "chroot": "x"}]}, "[0].chroot: expected a path that begins with '/'"),
        (
            {"zookeeper_servers": [{"host": "a"}, {"host": "b", "chroot": "/x/"}, {"host": "c", "chroot": "/y"}]},
            "[2].chroot: expected '/x', as the servers before it have: all have the same chroot, got '/y'",
        ),
        (
            {"zookeeper_servers": [{"host": "a", "chroot": 1}]},
            "[0].chroot: expected a path that begins with '/', got 1",
        ),
        ({"zookeeper_tls": None}, "zookeeper-tls: required, but missing: a mapping with cert, key and ca"),
        ({"zookeeper_tls": {"cert": "a", "key": "b"}}, "zookeeper-tls: ca is missing"),
        (
            {"zookeeper_tls": {"cert": "a", "key": "b", "ca": 1}},
            "zookeeper-tls.ca: expected the path of a PEM file, got 1",
        ),
        ({"zookeeper_tls": {"cert": "", "key": "b", "ca": "c"}}, "zookeeper-tls.cert: expected the path of a PEM file"),
        ({"zookeeper_timeout": 0}, "zookeeper-timeout: expected a number of seconds above 0, got 0"),
        ({"zookeeper_timeout": "ten"}, "zookeeper-timeout: expected a number of seconds above 0, got 'ten'"),
        ({"zookeeper_timeout": True}, "zookeeper-timeout: expected a number of seconds above 0, got true"),
        ({"zookeeper_timeout": float("inf")}, "zookeeper-timeout: expected a number of seconds above 0, got inf"),
    ],
)
def test_bad(file: Path, changes: dict[str, Any], expected: str) -> None:
    """Both readers refuse it with the same line."""
    path = write(file, **changes)
    for load in (load_zookeeper, load_config):
        with pytest.raises(ConfigError) as caught:
            load(path)
        (line,) = str(caught.value).splitlines()
        assert line.startswith(f"{path}:")
        assert expected in line


def test_quotes(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Daemons of Nodepool 11 take numbers in quotes, and so do we; the validator does not."""
    path = write(file, zookeeper_servers=[{"host": "a", "port": "2281"}], zookeeper_timeout="10")
    for load in (load_zookeeper, load_config):
        settings = load(path)
        assert (settings.zookeeper_servers[0].port, settings.zookeeper_timeout) == (2281, 10.0)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    with pytest.raises(ConfigError, match="got '2281'; it is read without the quotes"):
        load_config(path, strict=True)


@pytest.mark.parametrize("name", ["zookeeper-servers", "zookeeper-tls"])
def test_empty(file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Without a value it counts as not given, in the one file as in the other; so do daemons of Nodepool 11 read it."""
    good, empty = tmp_path / "good.yaml", tmp_path / "empty.yaml"
    good.write_text(yaml.safe_dump({name: GOOD[name]}), encoding="utf-8")
    empty.write_text(f"{name}:\n", encoding="utf-8")
    for changes, secure in (({}, empty), ({name: None}, good)):
        caplog.clear()
        assert (
            load_config(write(file, **changes), str(secure)).zookeeper_servers[0].host
            == GOOD["zookeeper-servers"][0]["host"]
        )
        # What the secure file replaces is not judged.
        assert (f"{name}: there is nothing below it" in caplog.text) == (secure is empty)


def test_all_problems_at_once(file: Path) -> None:
    path = write(file, zookeeper_servers=[{"host": 1}, {"host": "a", "port": 0}], zookeeper_timeout=-1)
    with pytest.raises(ConfigError) as caught:
        load_zookeeper(path)
    assert [line.split(": ")[0].rpartition(":")[2] for line in str(caught.value).splitlines()] == ["2", "4", "9"]


@pytest.mark.parametrize("missing", ["zookeeper-servers", "zookeeper-tls"])
def test_required(file: Path, missing: str) -> None:
    """R: a daemon or command cannot work without; Nodepool speaks TLS only."""
    file.write_text(yaml.safe_dump({key: value for key, value in GOOD.items() if key != missing}), encoding="utf-8")
    for load in (load_zookeeper, load_config):
        with pytest.raises(ConfigError, match=f"{missing}: required, but missing"):
            load(str(file))


def test_unknown_key_is_a_warning(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_zookeeper(write(file, zookeeper_servers=[{"host": "a", "prot": 1}]))
    assert "zookeeper-servers[0].prot: unknown key, did you mean 'port'? (allowed: chroot, host, port)" in caplog.text


def test_secure_file_wins(file: Path, tmp_path: Path) -> None:
    """G-15: servers and TLS of the secure file replace the others; its timeout is ignored."""
    secure = tmp_path / "secure.yaml"
    secure.write_text(
        yaml.safe_dump(
            {
                "zookeeper-servers": [{"host": "s"}],
                "zookeeper-tls": {"cert": "1", "key": "2", "ca": "3"},
                "zookeeper-timeout": 99,
            }
        ),
        encoding="utf-8",
    )
    settings = load_zookeeper(write(file), str(secure))
    assert settings.zookeeper_servers == [ZooKeeperServer("s")]
    assert settings.zookeeper_tls_ca == "3"
    assert settings.zookeeper_timeout == 10.0


def test_placeholders(file: Path, tmp_path: Path) -> None:
    """G-15: what the secure file replaces is not judged; without it, it is."""
    secure = tmp_path / "secure.yaml"
    write(secure)
    path = write(file, zookeeper_servers="SECRET", zookeeper_tls=["SECRET"])
    for load in (load_zookeeper, load_config):
        assert load(path, str(secure)).zookeeper_servers == [ZooKeeperServer("zk1")]
        with pytest.raises(ConfigError, match="zookeeper-servers: expected a list of servers"):
            load(path)


def test_everything_in_the_secure_file(file: Path, tmp_path: Path) -> None:
    file.write_text("labels: []\n", encoding="utf-8")
    secure = tmp_path / "secure.yaml"
    write(secure)
    assert load_zookeeper(str(file), str(secure)).zookeeper_servers == [ZooKeeperServer("zk1")]


def test_problem_in_the_secure_file(file: Path, tmp_path: Path) -> None:
    secure = tmp_path / "secure.yaml"
    secure.write_text("\nzookeeper-tls: 3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"^{secure}:2: zookeeper-tls: expected a mapping"):
        load_zookeeper(write(file), str(secure))


def test_rest_may_be_wrong(file: Path) -> None:
    """Commands that look at nodes work while somebody mends the file."""
    assert load_zookeeper(write(file, labels=3, providers=[{"driver": "?"}])).zookeeper_servers


def test_imports_neither_schemas_nor_drivers(file: Path) -> None:
    """``nodepool list`` must start fast."""
    program = (
        "import sys; from nodepool.config.loader import load_zookeeper; load_zookeeper(sys.argv[1]);"
        "sys.exit(', '.join(sorted({'voluptuous', 'paramiko', 'nodepool.driver', 'kazoo'} & set(sys.modules))) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, write(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
