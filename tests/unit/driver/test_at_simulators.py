# SPDX-License-Identifier: Apache-2.0
"""Adapters of several drivers at their simulated clouds: what tests/clouds cannot see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from tests.support.tables import driver_table
from tests.unit.driver.azure import support as azure
from tests.unit.driver.gce import support as gce
from tests.unit.driver.ibmvpc import support as ibmvpc
from tests.unit.driver.simulated_adapter import HOST

#: How an adapter is made at the cloud, a section, and what the API calls a creation.
PLACES: dict[str, tuple[Any, Callable[..., dict[str, Any]], str]] = {
    "azure": (azure.at_simulator, azure.section, "virtualMachines.put"),
    "gce": (gce.at_simulator, gce.section, "instances.insert"),
    "ibmvpc": (ibmvpc.at_simulator, ibmvpc.in_region, "vpc.create_instance"),
}
SECTIONS: dict[str, Any] = {"azure": azure, "gce": gce, "ibmvpc": ibmvpc}
FILTER: list[Any] = [{"name": "debian", "username": "zuul", "key": "k", "image-filter": {"name": "debian-12"}}]


@pytest.mark.parametrize(
    ("driver", "more", "operation", "kind"),
    [
        ("azure", {}, "subnets.get", "503"),
        ("azure", {"cloud_images": FILTER}, "images.list", "drop"),
        *(("gce", {}, operation, "503") for operation in ("machineTypes.*", "images.getFromFamily")),
        *(("ibmvpc", {}, operation, "503") for operation in ("vpc.list_subnets", "vpc.list_keys")),
    ],
)
def test_nothing_is_known_before(tmp_path: Path, driver: str, more: dict[str, Any], operation: str, kind: str) -> None:
    """CM-8: no answer to what is asked before the order: nothing was made, and there is nothing to look for."""
    at_simulator, section, creation = PLACES[driver]
    with at_simulator(tmp_path, section(**more)) as here:
        here.simulator.change(errors=[{"operation": operation, "kind": kind}])
        with pytest.raises(CloudAway) as caught:
            here.launch()
        assert not caught.value.maybe_done
        assert (list(here.adapter.unansweredCreations()), here.calls(creation)) == ([], 0)


@pytest.mark.parametrize(
    ("driver", "add", "words"),
    [
        ("azure", lambda cloud: cloud.add_vm(HOST, {"nodepool_provider_name": "other"}), "PreconditionFailed"),
        ("gce", lambda cloud: cloud.add_instance(HOST, {"nodepool_provider_name": "other"}), "alreadyExists"),
        ("ibmvpc", lambda cloud: cloud.add_instance(HOST, "np_north_main"), "validation_unique_failed"),
    ],
)
def test_instance_of_others(tmp_path: Path, driver: str, add: Callable[[Any], object], words: str) -> None:
    """CM-8, IV-2: an instance of the name that is not ours is neither changed, adopted nor deleted."""
    at_simulator, section, _ = PLACES[driver]
    with at_simulator(tmp_path, section()) as here:
        with here.simulator.cloud() as cloud:
            add(cloud)
        before = here.contents()
        with pytest.raises(CloudRefused, match=words):
            here.launch()
        if driver == "ibmvpc":
            # The others send a deletion by the name only when a list has shown whose it is.
            here.delete(HOST)
        assert {kind: here.contents().get(kind) for kind in before} == before


@pytest.mark.parametrize(
    ("driver", "data", "settings", "subject", "words"),
    [(driver, *row) for driver in PLACES for row in driver_table(driver, "check_finds")],
)
def test_check_finds(
    tmp_path: Path, driver: str, data: dict[str, Any], settings: dict[str, Any], subject: str, words: str
) -> None:
    """reference/commands: what is missing, and what to do."""
    at_simulator, section, _ = PLACES[driver]
    # Azure's file of credentials is written before its secret is another one.
    changes = settings if driver == "azure" else {}
    with at_simulator(tmp_path, SECTIONS[driver].changed(data, section), **({} if changes else settings)) as here:
        here.simulator.change(**changes)
        found = [one for one in here.adapter.preflight() if one.subject == subject and one.remedy]
        assert {one.status for one in found} == {"warning" if subject == "quota" else "failed"}
        assert any(words in f"{one.text}; {one.remedy}" for one in found), found
