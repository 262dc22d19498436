# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.machines`: when is a VM gone (AZ-11, CM-7)?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest

from nodepool.driver.azure.machines import FEW, AbsenceProof
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.guard import settle
from tests.unit.driver.azure.support import Here, at_simulator, section

NAMES = [f"np{number}" for number in range(5)]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """Of five VMs the first two are there."""
    with at_simulator(tmp_path, section(), boot_seconds=(0, 0)) as made:
        with made.simulator.cloud() as cloud:
            for name in NAMES[:2]:
                cloud.add_vm(name)
        yield made


def gone(here: Here, names: list[str]) -> set[str]:
    found = AbsenceProof(here.adapter.client).look(lambda: names)
    assert all(isinstance(error, CloudNotFound) for error in found.values())
    return set(found)


def test_few_are_asked_for(here: Here) -> None:
    """404 is the proof."""
    assert gone(here, NAMES[1 : 1 + FEW]) == set(NAMES[2 : 1 + FEW])
    assert (here.calls("virtualMachines.get"), here.calls("networkInterfaces.list")) == (FEW, 0)


def test_many_take_one_list(here: Here) -> None:
    """A VM is gone to which no interface belongs; of one with an interface nothing is said."""
    assert gone(here, NAMES) == set(NAMES[2:])
    assert (here.calls("virtualMachines.get"), here.calls("networkInterfaces.list")) == (0, 1)


def test_interface_that_is_left(here: Here) -> None:
    """One that no VM has proves nothing against it: those of VMs that failed stay for a while."""
    with here.simulator.cloud() as cloud:
        nic = next(nic for nic in cloud.resources.of("networkInterfaces") if nic.name == f"{NAMES[0]}-nic")
        del nic.properties["virtualMachine"]
    assert gone(here, NAMES) == {NAMES[0], *NAMES[2:]}


def test_other_case(here: Here) -> None:
    """Azure changes the case of names."""
    with here.simulator.cloud() as cloud:
        for nic in cloud.resources.of("networkInterfaces"):
            nic.document["name"] = nic.document["name"].upper()
    assert gone(here, NAMES) == set(NAMES[2:])


@pytest.mark.parametrize("names", [NAMES[:1], NAMES])
def test_no_answer_proves_nothing(here: Here, names: list[str]) -> None:
    here.simulator.change(denied=["virtualMachines.*", "networkInterfaces.*"])
    proof = AbsenceProof(here.adapter.client)
    outcome: Future[Mapping[str, Exception]] = Future()
    settle((outcome,), lambda: proof.look(lambda: names))
    error = outcome.exception() or outcome.result()[names[0]]
    assert isinstance(error, CloudRefused)
    assert not isinstance(error, CloudNotFound)
