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
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import LAB_NODE
from tests.support.command_line import CommandLine, Result
from tests.support.pool_znodes import PoolZnodes
from tests.support.tables import table

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
            done = self._nodepool(*arguments, answer=step.get("answer", ""))
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
