# SPDX-License-Identifier: Apache-2.0
"""Commands and what they answer, against a real ZooKeeper with TLS (reference/commands 2): cases of ``tables.yaml``.

A case says what is in ZooKeeper, commands with their answers, and what is left; each is a list of steps.

A step has one of these keys (paths of znodes without a leading slash are below ``/nodepool``):

- ``node``, ``request``: one more of them, with these fields. ``build``, ``upload``: image, build, ... and fields.
- ``put``: path -> content; ``register``: the same, as long as the session; ``lock``, ``free``: the lock of a znode.
- ``remove``: a list of trees of znodes.
- ``append``, ``replace``, ``write``: change the configuration. ``file``: write another file, ``{name: text}``.
- ``nodepool``: the arguments of a command; ``terminal``: the same at a terminal. Beside it stand ``answer`` (to its
  question), ``status`` (else 0), ``err`` (else nothing), ``out``, ``json``, ``keys`` (the first ones of the first
  object), ``rows`` (of a table, the first cells), ``headers``.
- ``left``: path -> what a znode has; null = there is none; a list = its children. ``exported``: a file -> its object.

In texts that are expected ``...`` stands for anything, as in doctest; of a list of texts each must fit. Beside the keys
that are expected there may be others. ``now-60`` is a time. ``<A>`` is the id of a build, 32 times an ``a``.
"""

from __future__ import annotations

import doctest
import json
import re
import shlex
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.driver.registry import PATH_VARIABLE
from simulators.openstack import OpenStackSimulator
from tests.integration.conftest import LAB_NODE
from tests.scenario.test_example import copy_of_the_example
from tests.support.command_line import CommandLine, Result
from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.serving_process import ServingProcess
from tests.support.tables import table
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

Step = dict[str, Any]
_MOMENT = re.compile(r"now([+-]\d+)?")
#: A command takes some seconds.
_NEAR_SECONDS = 100


def matches(found: object, wanted: Any) -> bool:
    """Is it what a case expects?"""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key in found and matches(found[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(found, str):
        return all(matches(found, each) for each in wanted)
    if isinstance(wanted, list):
        pairs = zip(found, wanted, strict=False) if isinstance(found, list) else ()
        return isinstance(found, list) and len(found) == len(wanted) and all(matches(*pair) for pair in pairs)
    if isinstance(wanted, str) and _MOMENT.fullmatch(wanted) and isinstance(found, int | float):
        return abs(found - float(_moment(wanted))) < _NEAR_SECONDS
    if isinstance(wanted, str) and (isinstance(found, str) or "..." in wanted):
        # The checker wants whole lines.
        return doctest.OutputChecker().check_output(f"{wanted}\n", f"{found}\n", doctest.ELLIPSIS)
    return isinstance(found, bool) is isinstance(wanted, bool) and found == wanted


def _moment(text: str) -> float:
    return time.time() + float(text.removeprefix("now") or 0)


class CommandSteps:
    """Does what a case says."""

    def __init__(self, nodepool: CommandLine, znodes: PoolZnodes) -> None:
        self._nodepool = nodepool
        self._znodes = znodes
        self._locks: dict[str, Any] = {}
        self._names = {**{f"<{name}>": name.lower() * 32 for name in "ABC"}, "<host>": socket.gethostname()}
        self._names.update({"<config>": str(nodepool.config), "<directory>": str(nodepool.config.parent)})

    def run(self, steps: list[Step]) -> None:
        for number, step in enumerate(steps, 1):
            verb = next(iter(step))
            if verb in ("nodepool", "terminal"):
                self._command(number, verb, {key: self._filled(value) for key, value in step.items()})
            else:
                getattr(self, verb)(self._filled(step[verb]))

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._filled(key): self._filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, str):
            for name, text in self._names.items():
                value = value.replace(name, text)
        return value

    def _given(self, value: Any) -> Any:
        """With times in the place of their texts."""
        if isinstance(value, dict):
            return {key: self._given(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._given(each) for each in value]
        return _moment(value) if isinstance(value, str) and _MOMENT.fullmatch(value) else value

    def _data(self, value: Any) -> bytes:
        if value is None or isinstance(value, bytes):
            return value or b""
        return value.encode() if isinstance(value, str) else json.dumps(self._given(value)).encode()

    @staticmethod
    def _path(path: str) -> str:
        return path if path.startswith("/") else f"/nodepool/{path}"

    # -- what there is

    def node(self, fields: Step) -> None:
        self._znodes.add_node(**self._given({"state": "ready", "state_time": "now-3600", **LAB_NODE, **fields}))

    def request(self, fields: Step) -> None:
        self._znodes.submit(**self._given(fields))

    def build(self, words: list[Any]) -> None:
        *names, fields = words if isinstance(words[-1], dict) else (*words, {})
        self._znodes.add_build(*names, **self._given(fields))

    def upload(self, words: list[Any]) -> None:
        *names, fields = words if isinstance(words[-1], dict) else (*words, {})
        self._znodes.add_upload(*names, **self._given(fields))

    def put(self, znodes: Step) -> None:
        for path, value in znodes.items():
            if self._znodes.kazoo.exists(self._path(path)):
                self._znodes.kazoo.set(self._path(path), self._data(value))
            else:
                self._znodes.kazoo.create(self._path(path), self._data(value), makepath=True)

    def register(self, znodes: Step) -> None:
        for path, value in znodes.items():
            self._znodes.kazoo.create(self._path(path), self._data(value), ephemeral=True, makepath=True)

    def remove(self, trees: list[str]) -> None:
        for path in trees:
            self._znodes.kazoo.delete(self._path(path), recursive=True)

    def lock(self, path: str) -> None:
        self._locks[path] = self._znodes.kazoo.Lock(f"{self._path(path)}/lock", "another")
        self._locks[path].acquire()

    def free(self, path: str) -> None:
        self._locks.pop(path).release()

    def append(self, text: str) -> None:
        with self._nodepool.config.open("a", encoding="utf-8") as file:
            file.write(text)

    def replace(self, change: list[str]) -> None:
        before, after = change
        text = self._nodepool.config.read_text(encoding="utf-8")
        assert before in text
        self._nodepool.config.write_text(text.replace(before, after), encoding="utf-8")

    def write(self, text: str | None) -> None:
        if text is None:
            self._nodepool.config.unlink()
        else:
            self._nodepool.config.write_text(text, encoding="utf-8")

    def file(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = Path(name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")

    # -- what is expected

    def _command(self, number: int, verb: str, step: Step) -> None:
        arguments = step[verb] if isinstance(step[verb], list) else shlex.split(step[verb])
        if verb == "terminal":
            done = self._nodepool.on_terminal(*arguments)
        else:
            done = self._nodepool.within(*arguments, answer=step.get("answer", ""))
        for what, wanted in {"status": 0, "err": "", **step}.items():
            if what in (verb, "answer"):
                continue
            found = self._part(done, what)
            if what == "keys":
                found = found[: len(wanted)]
            if what == "rows":
                found = [row[: len(part)] for row, part in zip(found, wanted, strict=False)] + found[len(wanted) :]
            assert matches(found, wanted), f"step {number}, {' '.join(arguments)}: {what} is\n{found}\nnot\n{wanted}"
        assert "Traceback" not in done.out + done.err

    @staticmethod
    def _part(done: Result, what: str) -> Any:
        if what == "json":
            return json.loads(done.out)
        if what == "keys":
            return list(json.loads(done.out)[0])
        if what == "headers":
            return [cell.strip() for cell in done.out.splitlines()[1].strip("|").split("|")]
        found = getattr(done, what)
        return found.removesuffix("\n") if isinstance(found, str) else found

    def left(self, znodes: Step) -> None:
        for path, wanted in znodes.items():
            path = self._path(path)
            found: Any
            if isinstance(wanted, list):
                found = self._znodes.children(path)
            elif self._znodes.kazoo.exists(path) is None:
                found = None
            else:
                data = self._znodes.kazoo.get(path)[0]
                found = json.loads(data) if isinstance(wanted, dict) else data.decode()
            assert matches(found, wanted), f"{path} has {found}, not {wanted}"

    def exported(self, files: dict[str, Step]) -> None:
        for name, wanted in files.items():
            assert json.loads(Path(name).read_text(encoding="utf-8")) == wanted


COMMANDS: dict[str, Any] = table(__file__, "commands")
WITH_CLOUDS: dict[str, Any] = table(__file__, "commands_with_clouds")


@pytest.mark.parametrize("case", COMMANDS)
def test_commands(nodepool: CommandLine, znodes: PoolZnodes, case: str) -> None:
    """For a static provider ``lab``."""
    CommandSteps(nodepool, znodes).run(COMMANDS[case])


@pytest.mark.parametrize("case", WITH_CLOUDS)
def test_commands_with_clouds(clouds: CommandLine, znodes: PoolZnodes, case: str) -> None:
    """For the clouds of `clouds`, too; the uploads of one of them are paused."""
    CommandSteps(clouds, znodes).run(WITH_CLOUDS[case])


# -- those that ask clouds: ``alien-image-list`` (D-3) and ``installation delete`` (D-10)


#: Ids of builds, and of installations.
A, B = (letter * 32 for letter in "ab")
OURS, LOST, OTHER = "0123456789abcdef", "fedcba9876543210", "1111222233334444"


def test_aliens(clouds: CommandLine, znodes: PoolZnodes, simulator: OpenStackSimulator) -> None:
    """Images of builders that have no record; each is listed for the provider that it was made for.

    A cloud that is away does not hide the others.
    """

    def in_cloud(build: str, number: int, provider: str) -> str:
        metadata = {"nodepool_build_id": build, "nodepool_upload_id": f"{number:010}"}
        with simulator.cloud() as cloud:
            image = cloud.images.add_active(f"debian-{number}")
            image.update({**metadata, "nodepool_provider_name": provider})
            return str(image["id"])

    znodes.add_build("debian", A)
    znodes.add_upload("debian", A, "cloud-a", 1, external_id=in_cloud(A, 1, "cloud-a"))
    znodes.add_upload("debian", A, "cloud-a", 2, state="uploading", external_id=None)
    in_cloud(A, 2, "cloud-a")
    lost, others = in_cloud(B, 1, "cloud-a"), in_cloud(A, 1, "cloud-b")
    result = clouds("alien-image-list", "cloud-a")
    assert (result.status, result.err) == (0, "")
    headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
    assert headers == ["Provider", "Name", "Image ID"]
    assert result.rows == [["cloud-a", "debian-1", lost]]
    assert json.loads(clouds("alien-image-list", "cloud-b", "--format", "json").out) == [
        {"provider": "cloud-b", "name": "debian-1", "image_id": others}
    ]
    result = clouds("alien-image-list")
    assert (result.status, result.rows) == (1, [["cloud-a", "debian-1", lost], ["cloud-b", "debian-1", others]])
    assert "cloud-c" in result.err
    assert "Traceback" not in result.err


@pytest.fixture
def installations(simulator: OpenStackSimulator, znodes: PoolZnodes) -> None:
    """Things of three installations, an earlier release, and others. ``former`` is a provider of before."""
    record = {"id": OURS, "adopted": []}
    znodes.kazoo.create("/nodepool/installation", json.dumps(record).encode(), makepath=True)

    def mark(installation: str | None) -> dict[str, str]:
        return {"nodepool_installation_id": installation} if installation else {}

    with simulator.cloud() as cloud:
        for name, provider, installation in (
            *(("lost", "cloud-a", LOST), ("renamed", "former", LOST), ("ours", "cloud-a", OURS)),
            *(("neighbour", "cloud-a", OTHER), ("old", "cloud-a", None)),
        ):
            metadata = {"nodepool_provider_name": provider, "nodepool_pool_name": "main", "nodepool_node_id": name}
            cloud.add_server(name, {**metadata, **mark(installation)})
        cloud.add_server("stray")
        for name, installation in (("lost", LOST), ("ours", OURS), ("old", None)):
            image = {"nodepool_provider_name": "cloud-b", "nodepool_build_id": "b1", "nodepool_upload_id": name}
            cloud.add_image(f"{name}-image", {**image, **mark(installation)})


@pytest.mark.usefixtures("installations")
def test_deletion_of_another_installation(clouds: CommandLine, simulator: OpenStackSimulator) -> None:
    """After a question. Each thing once, although two providers show it. A cloud that is away keeps no other."""

    def there() -> set[str]:
        """Names of servers, and of images that can be private."""
        with simulator.cloud() as cloud:
            servers = {server.name for server in cloud.compute.servers if not server.gone}
            return servers | {image["name"] for image in cloud.images.images if image["name"].endswith("-image")}

    before = there()
    result = clouds("installation", "delete", "0" * 16, "--force")
    assert (result.status, result.out) == (1, "")
    text = f"nothing in the clouds of the configuration has the id {'0' * 16} (other ids there: {OTHER}, {LOST})"
    assert result.err.splitlines()[-1] == text
    refused = clouds("installation", "delete", LOST)
    assert refused.out.startswith(f"These have the id {LOST}:\n")
    listed = [line for line in refused.out.splitlines() if line.startswith("  ")]
    assert sorted(line.split()[0] for line in listed) == ["image", "instance", "instance"]
    assert refused.out.endswith("Delete 3 thing(s) in the clouds? [N/y] \nAborting. Nothing deleted.\n")
    assert there() == before
    result = clouds("installation", "delete", LOST, answer="y\n")
    assert result.status == 1
    assert "cloud-c" in result.err
    assert "Traceback" not in result.err
    assert result.out.count("Deleting ") == 3
    wait_for("all is deleted", lambda: before - there() == {"lost", "renamed", "lost-image"})


# -- ``nodepool health`` with real daemons


Start = Callable[[str, dict[str, Any]], ServingProcess]


@pytest.fixture
def start(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, nodepool: CommandLine) -> Iterator[Start]:
    """Starts the daemon of a module with these settings of ``webapp``; the commands have the same configuration."""
    processes: list[ServingProcess] = []

    def start(module: str, webapp: dict[str, Any]) -> ServingProcess:
        write_config(nodepool.config, zookeeper, chroot, [StaticProvider(static_hosts(1))], extra={"webapp": webapp})
        processes.append(ServingProcess(module, nodepool.config))
        processes[-1].start()
        return processes[-1]

    yield start
    for process in processes:
        process.stop()


@pytest.mark.parametrize("kind", ["launcher", "web"])
def test_by_http(start: Start, nodepool: CommandLine, kind: str) -> None:
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}/health"
    process = start(f"nodepool.cmd.{kind}", {"listen_address": "127.0.0.1", "port": port})
    process.wait_ready()
    told = nodepool("health", f"--{kind}")
    assert (told.status, told.out) == (0, f"{kind}: {address}/ready: OK\n")
    process.stop()
    told = nodepool("health", f"--{kind}", "--live")
    assert told.status == 1
    assert told.out.startswith(f"{kind}: ")


def test_without_pages(start: Start, nodepool: CommandLine) -> None:
    """Any free port: the configuration does not tell which, and ZooKeeper does that there is a launcher."""
    process = start("nodepool.cmd.launcher", {"listen_address": "127.0.0.1", "port": 0})
    process.wait_ready()
    told = nodepool("health")
    assert (told.status, told.err) == (0, "")
    assert told.out == f"launcher: registered in ZooKeeper for {socket.gethostname()}\n"


# -- a driver that is not part of the package, as its author installs it: a directory and an environment variable


def test_copied_driver(tmp_path: Path, nodepool: CommandLine) -> None:
    """reference/driver 0: config-validate knows it. In launchers: `tests.scenario.test_example`."""
    copy_of_the_example(tmp_path / "drivers", "mycloud")
    label = {"name": "small", "cloud-image": "debian", "size": "small"}
    provider = {
        "name": "mine",
        "driver": "mycloud",
        "url": "http://127.0.0.1:1",
        "cloud-images": [{"name": "debian", "username": "debian"}],
        "pools": [{"name": "main", "labels": [label]}],
    }
    settings: dict[str, Any] = yaml.safe_load(nodepool.config.read_text(encoding="utf-8"))
    nodepool.config.write_text(yaml.safe_dump({**settings, "providers": [provider]}), encoding="utf-8")
    assert nodepool("config-validate").status == 1
    nodepool.environment[PATH_VARIABLE] = str(tmp_path / "drivers")
    result = nodepool("config-validate")
    assert result.status == 0, result.err
