# SPDX-License-Identifier: Apache-2.0
"""Commands that wait for something, follow it, or are interrupted, with a real ZooKeeper (reference/commands 2)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import CommandLine
from tests.support.fake_builder import IMAGE, FakeBuilder
from tests.support.image_znodes import IMAGES, ImageZnodes
from tests.support.local_launcher import LocalLauncher, fake_provider, launcher_settings
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.terminal import shell_on_terminal
from tests.support.wait import holds_for, wait_for
from tests.support.zookeeper import ZooKeeperServer

#: Ids of builds.
A, B = (letter * 32 for letter in "ab")
CLOUDS = ("cloud-a", "cloud-b")


class Waiting:
    """A command that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """The next line of its answer. Blocks."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ends(self, number: int | None = None) -> tuple[int, str, str]:
        """Its status and what it says after this signal, or by itself. Blocks."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def start(nodepool: CommandLine) -> Iterator[Callable[..., Waiting]]:
    """Starts commands; in the end none is left."""
    started: list[Waiting] = []

    def start(*arguments: str, of: CommandLine = nodepool) -> Waiting:
        started.append(Waiting(of.start(*arguments)))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


@pytest.fixture
def images(znodes: PoolZnodes, nodepool: CommandLine) -> ImageZnodes:
    """An image ``debian``, and a builder."""
    with nodepool.config.open("a", encoding="utf-8") as file:
        file.write(f"\ndiskimages: [{{name: debian, formats: [raw]}}]\nbuild-log-dir: {nodepool.config.parent}\n")
    znodes.add_builder()
    return znodes


def test_build(start: Callable[..., Waiting], images: ImageZnodes) -> None:
    """--wait: ends when the build does; a line for each 10%."""
    images.add_build("debian", A)
    waiting = start("image-build", "debian", "--wait")
    wait_for("the request", lambda: images.kazoo.exists(f"{IMAGES}/debian/request-build"))
    assert waiting.line() == "debian: waiting for a builder\n"
    images.tell(builds={f"debian/{B}": {"step": "install", "estimate": 100000}})
    images.add_build("debian", B, state="building")
    assert waiting.line().startswith(f"debian-{B}:   0% install 1 min of about ")
    images.add_build("debian", B)
    assert waiting.ends() == (0, f"Build debian-{B} is ready\n", "")


def test_build_that_fails(start: Callable[..., Waiting], images: ImageZnodes) -> None:
    waiting = start("image-build", "debian", "--wait")
    wait_for("the request", lambda: images.kazoo.exists(f"{IMAGES}/debian/request-build"))
    images.add_build("debian", A, state="failed")
    status, _, err = waiting.ends()
    assert (status, err) == (1, f"Build debian-{A} has failed; its log is on b.example\n")


def test_log_of_a_build(start: Callable[..., Waiting], images: ImageZnodes, nodepool: CommandLine) -> None:
    """--follow: ends when the build has ended, with all that was written."""
    path: Path = nodepool.config.parent / f"debian-{B}.log"
    path.write_text("begin\n", encoding="utf-8")
    images.add_build("debian", B, state="building")
    waiting = start("image-log", "debian", "--follow")
    assert waiting.line() == "begin\n"
    with path.open("a", encoding="utf-8", buffering=1) as log:
        log.write("more\n")
        assert waiting.line() == "more\n"
        log.write("the end\n")
    images.add_build("debian", B)
    assert waiting.ends() == (0, "the end\n", "")


def test_deletion(start: Callable[..., Waiting], add_node: Callable[..., str], znodes: PoolZnodes) -> None:
    component = {"kind": "pool", "id": "p1", "hostname": "l1", "provider_name": "lab", "name": "main"}
    path = "/nodepool/components/pool/l1"
    znodes.kazoo.create(path, json.dumps(component).encode(), ephemeral=True, makepath=True)
    node_id = add_node()
    waiting = start("delete", node_id, "--wait")
    assert waiting.process.stderr is not None
    assert waiting.process.stderr.readline().startswith(f"node {node_id}: deleting")
    assert waiting.process.poll() is None
    wait_for("its lock is free", lambda: znodes.node_lockers(node_id) == [])
    znodes.kazoo.delete(f"/nodepool/nodes/{node_id}", recursive=True)
    status, out, _ = waiting.ends()
    assert (status, "| Provider |" in out, node_id in out) == (0, True, False)


@pytest.mark.parametrize("command", ["list", "request-list"])
def test_watch(nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes, command: str) -> None:
    """A terminal is drawn again when something changes; Ctrl-C is the end that was asked for. Elsewhere: refused."""

    def add() -> str:
        return add_node() if command == "list" else znodes.submit(["small"])

    first, later = add(), list[str]()

    def look(shown: str) -> bool:
        if not later and first in shown:
            later.append(add())
        return bool(later) and later[0] in shown

    result = nodepool.on_terminal(command, "-w", until=look)
    assert result.status == 0
    result = nodepool(command, "-w")
    assert (result.status, result.out) == (1, "")
    assert "--watch needs a terminal" in result.err


def tell(znodes: PoolZnodes, kind: str, **record: Any) -> None:
    """Stores what a pool or launcher tells."""
    path, data = f"/nodepool/status/{kind}/l1", json.dumps({"host": "l1", **record}).encode()
    if znodes.kazoo.exists(path):
        znodes.kazoo.set(path, data)
    else:
        znodes.kazoo.create(path, data, makepath=True)


def test_status(nodepool: CommandLine, znodes: PoolZnodes) -> None:
    """OV-6: drawn again when something has changed; OV-2: the exit status has the problems."""
    tell(
        znodes, "launcher", pid=42, absent=[{"name": "other", "driver": "openstack", "text": "no cloud", "since": 1.0}]
    )
    tell(znodes, "pool", id="l1-lab", provider="lab", pool="rack", state="running")
    seen = list[str]()

    def look(shown: str) -> bool:
        if not seen and "no cloud" in shown:
            tell(znodes, "pool", id="l1-lab", provider="lab", pool="rack", state="paused")
            seen.append(shown)
        return bool(seen) and "full" in shown

    assert nodepool.on_terminal("status", "-w", "--fail-on-problems", until=look).status == 3


def test_events(start: Callable[..., Waiting], znodes: PoolZnodes) -> None:
    seen = {"at": 1.0, "actor": "l1", "subject": "host zuul@b:22", "what": "down", "text": "cannot connect"}
    tell(znodes, "launcher", pid=42, events=[seen])
    waiting = start("events", "-f")
    assert "host zuul@b:22 down: cannot connect" in waiting.line()
    tell(znodes, "launcher", pid=42, events=[seen, {**seen, "at": 2.0, "what": "up", "text": ""}])
    assert waiting.line().endswith("l1: host zuul@b:22 up\n")
    assert waiting.ends(signal.SIGINT) == (0, "", "")


def test_zookeeper_that_does_not_answer(
    nodepool: CommandLine, start: Callable[..., Waiting], zookeeper: ZooKeeperServer
) -> None:
    """One clear line with the hosts after a bounded wait. Ctrl-C meanwhile: no output, and the status for it."""
    text = nodepool.config.read_text(encoding="utf-8")

    def use(port: int) -> None:
        nodepool.config.write_text(text.replace(str(zookeeper.tls_port), str(port)), encoding="utf-8")

    (dead,) = free_ports(1)
    use(dead)
    result = nodepool("list")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert f"127.0.0.1:{dead} (zookeeper-servers[0]): connection refused" in result.err
    with socket.create_server(("127.0.0.1", 0)) as mute:
        use(mute.getsockname()[1])
        waiting = start("list")
        mute.settimeout(60)
        with mute.accept()[0]:
            assert waiting.ends(signal.SIGINT) == (130, "", "")


# -- commands for images while a builder works, with two fake clouds and fake builds


class Site:
    """A builder, and the command line with its configuration."""

    def __init__(self, builder: FakeBuilder) -> None:
        self.builder = builder
        settings = yaml.safe_load(builder.config_path.read_text(encoding="utf-8"))
        settings["providers"] = [
            {"name": name, "driver": "fake", "diskimages": [{"name": IMAGE}], "pools": []} for name in CLOUDS
        ]
        builder.config_path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        self.nodepool = CommandLine(builder.config_path)

    def listed(self, *command: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.nodepool(*command, "--format", "json").out)
        return found

    def uploads(self, provider: str) -> dict[str, dict[str, Any]]:
        """Build id -> row of ``image-list --detail``, of ready uploads."""
        rows = self.listed("image-list", "--detail")
        return {row["id"]: row for row in rows if row["provider"] == provider and row["state"] == "ready"}

    def delete_upload(self, build: str, provider: str) -> None:
        """Have the ready upload of a build deleted."""
        number = self.uploads(provider)[build]["upload_id"]
        where = ["--provider", provider, "--image", IMAGE, "--build-id", build, "--upload-id", number]
        assert self.nodepool("image-delete", *where).status == 0

    def build(self) -> str:
        """Have a build made and uploaded, with the commands that wait; returns its id."""
        known = self.builder.builds().keys()
        result = self.nodepool("image-build", IMAGE, "--wait")
        assert (result.status, result.err) == (0, "")
        last = result.out.splitlines()[-1]
        assert last.startswith(f"Build {IMAGE}-")
        assert last.endswith(" is ready")
        build_id = last.split()[1].rpartition("-")[2]
        assert build_id not in known
        wait_for("its uploads", lambda: all(build_id in self.uploads(cloud) for cloud in ("cloud-a", "cloud-b")))
        return build_id


@pytest.fixture
def site(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> Iterator[Site]:
    builder = FakeBuilder(tmp_path / "builder", zookeeper, chroot, znodes)
    made = Site(builder)
    builder.start()
    try:
        builder.wait_ready()
        builder.wait_state("ready")
        yield made
    finally:
        builder.stop(seconds=60)
    assert "Traceback" not in builder.log_text()


def test_going_back(site: Site) -> None:
    """R-18: builders leave the older upload in front, until there is a newer build."""
    first, second = site.build(), site.build()
    result = site.nodepool("image-rollback", "cloud-a", IMAGE)
    assert (result.status, result.err) == (0, "")

    def uses() -> dict[str, Any]:
        return {build: row["use"] for build, row in site.uploads("cloud-a").items()}

    assert uses() == {first: "current", second: "rolled back"}
    assert site.uploads("cloud-b")[second]["use"] == "current"
    before = site.uploads("cloud-b")[second]["upload_id"]
    site.delete_upload(second, "cloud-b")
    holds_for(
        "nobody uploads the newer build to the other cloud again",
        lambda: uses() == {first: "current", second: "rolled back"},
        until=lambda: site.uploads("cloud-b").get(second, {}).get("upload_id", "") > before,
    )
    third = site.build()
    assert site.uploads("cloud-a")[third]["use"] == "current"


def test_deletions(site: Site) -> None:
    """R-13: an upload that is deleted is uploaded again; a build that is deleted is gone everywhere, with its files."""
    build = site.build()
    before = site.uploads("cloud-a")[build]["upload_id"]
    site.delete_upload(build, "cloud-a")
    wait_for("it is uploaded again", lambda: site.uploads("cloud-a").get(build, {}).get("upload_id", "") > before)
    assert site.nodepool("dib-image-delete", f"{IMAGE}-{build}").status == 0
    wait_for("the build is gone", lambda: build not in site.builder.builds())
    assert build not in {row["id"] for row in site.listed("image-list")}
    assert not [name for name in site.builder.files() if build in name]


def test_bars_on_a_terminal(site: Site) -> None:
    """The build that runs is drawn with its step, and the last line stays; the log is here."""
    site.builder.configure({IMAGE: {"formats": ["raw"], "env-vars": {"FAKE_BUILD_SECONDS": "4"}}})
    Site(site.builder)
    (build, *_) = site.builder.builds()
    assert site.nodepool("image-log", f"{IMAGE}-{build}").out == site.builder.log_of(build)
    result = site.nodepool.on_terminal("image-build", IMAGE, "--wait")
    lines = [line for line in result.out.splitlines() if f"{IMAGE}-" in line]
    assert (result.status, len(lines) > 1, result.out.rstrip().endswith(" is ready")) == (0, True, True)


# -- ``nodepool request``


@pytest.fixture
def cloud(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> Iterator[LocalLauncher]:
    """A launcher with the label ``small``, of which there may be one node."""
    settings = launcher_settings([fake_provider(cloud=tmp_path.name, pool_max_servers=1)], None, {})
    launcher = LocalLauncher(tmp_path / "cloud.yaml", zookeeper, chroot, settings)
    launcher.start()
    yield launcher
    launcher.stop()
    assert (znodes.kazoo.get_children("/nodepool/requests"), znodes.nodes("in-use")) == ([], {})


def short_session(cloud: LocalLauncher) -> CommandLine:
    """ZooKeeper keeps what this command had for 15 s after its death."""
    settings = yaml.safe_load(cloud.path.read_text(encoding="utf-8"))
    made = CommandLine(cloud.path.with_name("short.yaml"))
    made.config.write_text(yaml.safe_dump({**settings, "zookeeper-timeout": 15.0}), encoding="utf-8")
    return made


def has(state: str, znodes: PoolZnodes) -> str:
    """Waits for the only node to be in a state, and returns its id."""
    return wait_for(f"a node is {state}", lambda: next(iter(znodes.nodes(state)), ""))


def test_nodes_of_a_person(start: Callable[..., Waiting], cloud: LocalLauncher, znodes: PoolZnodes) -> None:
    """What Zuul does, in its order; the end of the line, or of the time, gives the nodes back."""
    nodepool = CommandLine(cloud.path)
    waiting = start("request", "small", "--tenant", "t1", of=nodepool)
    assert waiting.line().startswith("Request 200-0000000000 is fulfilled after ")
    node_id = has("in-use", znodes)
    node = znodes.node(node_id)
    assert node is not None
    assert (node["allocated_to"], node["tenant_name"]) == ("200-0000000000", "t1")
    assert node["requestor"].startswith("nodepool request ")
    assert znodes.request("200-0000000000") is None
    (row,) = json.loads(nodepool("list", "-o", "json").out)
    assert row["locked_by"].startswith("nodepool command of ")
    assert waiting.line() == f"small: node {node_id} in cloud/main\n"
    assert waiting.line() == f"  ssh {node['username']}@{node['interface_ip']}\n"
    told = nodepool("explain", node_id)
    by = node["requestor"].rpartition(" ")[2]
    assert f"is in use for request 200-0000000000, tenant t1, requested by {by}." in told.out
    assert waiting.line() == "Yours until Ctrl-C.\n"
    out, err = waiting.process.communicate("\n", timeout=60)
    assert out == f"Node {node_id} is given back: it was used, and is deleted.\n"
    assert (waiting.process.returncode, err) == (0, "")
    wait_for("the launcher deletes it", lambda: znodes.node(node_id) is None)


def test_nodes_for_a_program(start: Callable[..., Waiting], cloud: LocalLauncher, znodes: PoolZnodes) -> None:
    """JSON alone on standard output; the time ends it, as does ``kill``."""
    for arguments, number in ((["--hold", "1s"], None), ([], signal.SIGTERM)):
        waiting = start("request", "small", "-o", "json", *arguments, of=CommandLine(cloud.path))
        answer = json.loads(waiting.line())
        (node,) = answer["nodes"]
        assert (node["label"], node["port"], node["connection_type"]) == ("small", 22, "ssh")
        assert node["command"].endswith(f"@{node['address']}")
        status, out, err = waiting.ends(number)
        assert (status, out) == (0, "")
        assert f"Node {node['id']} is given back" in err
        wait_for("it is deleted", lambda: not znodes.nodes())


def test_nodes_at_a_terminal(cloud: LocalLauncher) -> None:
    """Ctrl-C is the usual end."""
    told = CommandLine(cloud.path).on_terminal("request", "small", until=lambda text: "Ctrl-C.\r\n" in text)
    *_, yours, last = told.out.splitlines()
    assert (told.status, yours) == (0, "Yours until Enter or Ctrl-C.")
    assert last.endswith(" is given back: it was used, and is deleted.")


def test_request_that_waits(start: Callable[..., Waiting], cloud: LocalLauncher, znodes: PoolZnodes) -> None:
    """It says why it waits; nothing of it is left after a time-out, Ctrl-C, or the death of the command."""
    nodepool, doomed = CommandLine(cloud.path), short_session(cloud)
    first = start("request", "small", of=doomed)
    node_id = has("in-use", znodes)
    told = nodepool("request", "small", "--timeout", "3s")
    assert told.status == 1
    assert told.err.splitlines()[-1].startswith("request 200-0000000001 has no nodes after 3 s: it "), told.err
    second = start("request", "small", of=nodepool)
    assert second.process.stderr is not None
    while "waits for room in cloud/main" not in second.process.stderr.readline():
        assert second.process.poll() is None
    assert second.ends(signal.SIGINT)[0] == 130
    assert znodes.request("200-0000000002") is None
    first.process.kill()
    wait_for("its session ends, and the node is deleted", lambda: znodes.node(node_id) is None, seconds=90)


def test_session_that_ends(start: Callable[..., Waiting], cloud: LocalLauncher, znodes: PoolZnodes) -> None:
    """A machine that slept for a while has lost its nodes, and the command says so."""
    waiting = start("request", "small", of=short_session(cloud))
    node_id = has("in-use", znodes)
    while not waiting.line().startswith("Yours"):
        assert waiting.process.poll() is None
    waiting.process.send_signal(signal.SIGSTOP)
    wait_for("the launcher deletes the node", lambda: znodes.node(node_id) is None, seconds=90)
    status, out, err = waiting.ends(signal.SIGCONT)
    assert (status, out) == (1, "")
    # On a busy machine it takes long to connect again.
    last = err.splitlines()[-1]
    assert last.startswith(("the session with ZooKeeper has ended: ", "nodepool: the connection to ZooKeeper at ")), err


def test_zookeeper_that_stays_away(
    start: Callable[..., Waiting], cloud: LocalLauncher, znodes: PoolZnodes, zookeeper: ZooKeeperServer
) -> None:
    """What keeps nodes, and what waits for some, ends with a line; the session ends the rest."""
    keeps = start("request", "small", of=short_session(cloud))
    node_id = has("in-use", znodes)
    while not keeps.line().startswith("Yours"):
        assert keeps.process.poll() is None
    waits = start("request", "small", of=short_session(cloud))
    assert waits.process.stderr is not None
    while "waits for room" not in waits.process.stderr.readline():
        assert waits.process.poll() is None
    zookeeper.kill()
    try:
        for waiting in (keeps, waits):
            status, out, err = waiting.ends()
            assert (status, out) == (1, "")
            assert "nodepool: the connection to ZooKeeper at " in err
    finally:
        zookeeper.start()
    wait_for("the launcher deletes the node", lambda: znodes.node(node_id) is None, seconds=90)
    wait_for("the request ends", lambda: not znodes.kazoo.get_children("/nodepool/requests"), seconds=90)


def test_nodes_in_the_background(cloud: LocalLauncher) -> None:
    """A job of a shell has its nodes without a stop for the terminal, of which another command has the input."""
    nodepool = CommandLine(cloud.path)
    line = shlex.join(
        [sys.executable, "-m", "nodepool.cmd.cli", "-c", str(cloud.path), *["request", "small", "--hold", "1s"]]
    )
    above, terminal = pty.openpty()
    shell = ["setsid", "--wait", "--ctty", "bash", "-mc", f"{line} & wait $!; echo status $?; kill -9 $!"]
    process = subprocess.Popen(
        shell, stdin=terminal, stdout=terminal, stderr=terminal, env={**nodepool.environment, "TERM": "xterm"}, cwd="/"
    )
    os.close(terminal)
    written = b""
    with contextlib.suppress(OSError), open(above, "rb", buffering=0) as stream:
        while part := stream.read(65536):
            written += part
    process.wait(60)
    assert b" is given back: it was used, and is deleted." in written
    assert b"status 0" in written


def test_request_that_fails(cloud: LocalLauncher) -> None:
    """One line with the reason."""
    told = CommandLine(cloud.path)("request", "smal")
    assert (told.status, told.out) == (1, "")
    text = "request 200-0000000000 failed; no registered pool has the label smal, did you mean 'small'?"
    assert told.err.splitlines()[-1] == text


# -- names that shells complete


@pytest.fixture
def shell_place(nodepool: CommandLine, znodes: PoolZnodes, add_node: Callable[..., str]) -> Path:
    """A directory with a program ``nodepool`` that has a site with something of each kind."""
    component = {"kind": "pool", "id": "p1", "hostname": "l1", "provider_name": "lab", "name": "main"}
    for path, value in {
        "components/pool/l1": {**component, "supported_labels": ["small", "$(touch bad)"]},
        "status/pool/p1": {"id": "p1", "provider": "lab", "pool": "main", "hosts": [{"name": "zuul@rack1-a:22"}]},
        "images/debian": {},
    }.items():
        znodes.kazoo.create(f"/nodepool/{path}", json.dumps(value).encode(), ephemeral=True, makepath=True)
    add_node()
    znodes.submit(["small"])
    place = nodepool.config.parent / "place"
    place.mkdir()
    program = place / "nodepool"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodepool.cmd.cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return place


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_of_what_there_is(shell: str, shell_place: Path, nodepool: CommandLine) -> None:
    """The tab key knows what ZooKeeper has, for the configuration that was typed; else nothing."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    environment = {"PATH": f"{shell_place}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(shell_place / "cache")}
    environment["PYTHONPATH"] = nodepool.environment["PYTHONPATH"]
    nodepool.environment.update(environment)
    # A busy machine takes longer than a shell waits. Then the names of the last time are used.
    call = ("completion", "--names", "node", shell, "--", "-c", str(nodepool.config), "")
    wait_for("the names are known", lambda: nodepool(*call).out)
    script = shell_place / f"completion.{shell}"
    text = nodepool("completion", shell).out
    if shell == "zsh":
        text = f"autoload -Uz compinit && compinit -u -d '{shell_place}/dump'\neval {shlex.quote(text)}\n"
    script.write_text(text, encoding="utf-8")
    typed = {
        "explain 200-": "200-0000000000",
        "hold 0": "0000000000",
        "request sm": "small",
        "list --provider l": "lab",
        "list --state buil": "building",
        "list --pool lab/": "lab/main",
        "quarantine ra": "rack1-a",
        "image-pause de": "debian",
    }
    found = {}
    if shell == "fish":
        for words in typed:
            line = f"source {script}; complete -C 'nodepool -c {nodepool.config} {words}'"
            command = ["fish", "--no-config", "-c", line]
            told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
            assert told.stderr == ""
            found[words] = told.stdout.partition("\t")[0]
    else:
        with shell_on_terminal(shell, script, "nodepool", environment) as terminal:
            for words in typed:
                found[words] = terminal.arguments(f"nodepool -c {nodepool.config} {words}\t")[-1]
            assert terminal.arguments("nodepool -c /no/file hold 0\t")[-1] == "0"
    assert found == typed
    (cache,) = (shell_place / "cache" / "nodepool").iterdir()
    assert (cache.stat().st_mode & 0o777, (shell_place / "bad").exists()) == (0o600, False)


def test_names_without_an_answer(nodepool: CommandLine, tmp_path: Path) -> None:
    """A server that does not answer costs a second, and is no error; the names of the last time are used."""
    text = nodepool.config.read_text(encoding="utf-8")
    settings = yaml.safe_load(text)
    nodepool.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    arguments = ["completion", "--names", "provider", "bash", "--", "-c", str(nodepool.config), "providers", ""]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings["zookeeper-servers"] = [{"host": "127.0.0.1", "port": silent.getsockname()[1]}]
        nodepool.config.write_text(yaml.safe_dump(settings), encoding="utf-8")
        began = time.monotonic()
        told = nodepool(*arguments)
        assert (told.status, told.out, told.err) == (0, "", "")
        assert time.monotonic() - began < 9, "a command waits for 10 s"
    (tmp_path / "cache" / "nodepool").mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(nodepool.config).encode()).hexdigest()[:16]
    cache = tmp_path / "cache" / "nodepool" / f"names-{name}.json"
    cache.write_text('{"provider": ["old", "b$d"]}', encoding="utf-8")
    os.utime(cache, (time.time() - 600, time.time() - 600))
    assert nodepool(*arguments).out == "old\n"
