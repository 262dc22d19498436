# SPDX-License-Identifier: Apache-2.0
"""What a released driver talks to in a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.support.kubernetes_rig import KubernetesRig
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer

#: Of a driver that has no sweep.
NO_SWEEP = "the driver does not look"


@dataclass
class Section:
    """An entry of ``providers`` as it is written into nodepool.yaml.

    :param config: keys beside ``name``. :param labels: names of the labels that it offers.
    """

    name: str
    config: Mapping[str, Any]
    labels: tuple[str, ...] = ("small",)
    slots: int = 0

    def as_config(self) -> dict[str, Any]:
        return {"name": self.name, **self.config}


@dataclass(frozen=True)
class Surroundings:
    """What a cloud may use: a directory of its own, the znodes of its launcher, a real sshd, a control plane."""

    directory: Path
    znodes: PoolZnodes
    sshd: SshServer
    rig: KubernetesRig


@dataclass
class Cloud:
    """Base: a cloud, or what stands for one, with one provider, one pool and one label.

    `prepare`, `start` and `stop` are called at most once, in order. What asks the cloud may follow `start`.
    """

    #: Name of the driver's directory in the released package, or another name that it gets beside that.
    driver: ClassVar[str]
    #: What the driver talks to, as the table of the documentation says it.
    kind: ClassVar[str]
    #: Why it launches nothing; empty: it does.
    no_launch: ClassVar[str] = ""
    #: Why nothing that was leaked is found; empty: it is.
    no_sweep: ClassVar[str] = ""
    #: Does the driver look for leaks only when its launcher starts?
    looks_at_start: ClassVar[bool] = False
    #: The label that is asked for.
    label: ClassVar[str] = "small"
    #: Name of the directory in the released package when ``driver`` is another name.
    original: ClassVar[str] = ""

    surroundings: Surroundings
    #: What the launcher has in its environment.
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """Name of the provider: no other row has it."""
        return f"old-{self.driver}"

    @property
    def pool(self) -> str:
        """Name of its pool."""
        return "main"

    @property
    def directory(self) -> Path:
        return self.surroundings.directory

    @property
    def znodes(self) -> PoolZnodes:
        return self.surroundings.znodes

    def sections(self) -> list[Section]:
        """The providers of the configuration; the first one is that of the driver."""
        return [Section(self.provider, {"driver": self.driver, **self.section()})]

    def section(self) -> dict[str, Any]:
        """The provider without ``name`` and ``driver``."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Makes what ``config-validate`` needs; called once, before `start`."""

    def start(self) -> None:
        """Blocks until it answers. Skips the test where what it needs is not to be had."""

    def stop(self) -> None:
        """Blocks until all that `start` began has ended."""

    def machines(self) -> set[str]:
        """Ids of the nodes that the cloud holds something for."""
        raise NotImplementedError

    def trouble(self) -> str:
        """What makes further waiting useless; empty: nothing."""
        return ""

    def check_node(self, node: Mapping[str, Any]) -> None:
        """What the znode of a ready node must say beside what all nodes say."""

    def check_deleted(self, node_id: str) -> None:
        """What must be true some time after a node was given back. :raises AssertionError: not yet."""
        assert node_id not in self.machines(), f"still there for node {node_id}"

    def leave(self) -> set[str]:
        """Makes what nobody knows of, and what is not ours. Returns names of the former, see `left`."""
        return set()

    def left(self) -> set[str]:
        """Names of what `leave` made and is still there."""
        return set()
