# SPDX-License-Identifier: Apache-2.0
"""What tests have that run against the simulator of Kubernetes and against a real control plane."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.kubernetes_client import KubernetesClient, Refusal, refusal
from tests.support.wait import wait_for

T = TypeVar("T")
#: Every test has namespaces of its own: a real cluster keeps what earlier ones left for a while.
_NUMBERS = itertools.count(1)


@dataclass
class Place:
    """A cluster. :param expire: from now on no watch can begin at a version of before."""

    kubeconfig: Path
    expire: Callable[[], None]
    openshift: bool = True


def new_name(kind: str) -> str:
    """Of a namespace or project."""
    return f"{kind}-{next(_NUMBERS)}"


def until(what: str, look: Callable[[], T | None]) -> T:
    """What `look` gives in the end."""
    found = wait_for(what, look)
    assert found is not None
    return found


def refused(call: Callable[[], object]) -> Refusal:
    """The call must be refused; what it is refused with."""
    found = refusal(call)
    assert found is not None, "it was not refused"
    return found


class KubernetesContract:
    """A subclass has a fixture ``place``."""

    @pytest.fixture
    def cluster(self, place: Place) -> Iterator[KubernetesClient]:
        client = KubernetesClient.of_context(place.kubeconfig)
        yield client
        client.close()

    def wait_filled(self, cluster: KubernetesClient, namespace: str) -> None:
        """Until the cluster has added what each namespace gets. Blocks."""

    @pytest.fixture
    def namespace(self, cluster: KubernetesClient) -> Iterator[str]:
        name = new_name("contract")
        cluster.add_namespace(name, contract=name)
        self.wait_filled(cluster, name)
        yield name
        refusal(lambda: cluster.core.delete_namespace(name))
