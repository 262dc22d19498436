# SPDX-License-Identifier: Apache-2.0
"""Quota and capacity in a simulated subscription."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nodepool.exceptions import RuntimeConfigurationException
from tests.unit.driver.azure.support import Here, at_simulator, label_of, section
from tests.unit.driver.simulated_adapter import HOST


def test_limits(tmp_path: Path) -> None:
    """AZ-3, AZ-9, Q-4: cores of regular VMs and of the family, spot cores, addresses; what a label and a VM use."""
    data = section({"hardware-profile": {"vm-size": "standard_d2S_v5"}, "use-spot": True, "spot-fallback": True})
    quotas = {"cores": 10, "standardDSv5Family": 8, "lowPriorityCores": 3, "virtualMachines": 7}
    with at_simulator(tmp_path, data, quotas=quotas) as here:
        label = label_of(here.adapter.config)
        need = here.adapter.getQuotaForLabel(label).get_resources()
        assert need == {
            "cores": 2,
            "instances": 1,
            "ram": 8192,
            "lowPriorityCores": 2,
            "StandardSkuPublicIPAddresses": 1,
        }
        assert here.adapter.getQuotaLimits().get_resources() == {
            "instances": 7,
            "regularCores": 10,
            "standardDSv5Family": 8,
            "lowPriorityCores": 3,
            "StandardSkuPublicIPAddresses": 10000,
        }
        here.launch()
        (instance,) = here.adapter.listInstances()
        assert instance.getQuotaInformation().get_resources() == need
        here.delete(HOST)


def test_limits_that_nobody_tells(here: Here) -> None:
    """Q-4: without them there is what Azure refuses."""
    here.simulator.change(denied=["usages.*"])
    assert here.adapter.getQuotaLimits().quota["compute"]["instances"] == math.inf
    assert here.adapter.getQuotaLimits().default == math.inf


def test_unknown_size(tmp_path: Path) -> None:
    """AZ-9 (today): a label that can never work declines its requests."""
    told = r"no size 'Standard_X'; correct hardware-profile\.vm-size"
    data = section({"hardware-profile": {"vm-size": "Standard_X"}})
    with at_simulator(tmp_path, data) as here, pytest.raises(RuntimeConfigurationException, match=told):
        here.adapter.getQuotaForLabel(label_of(here.adapter.config))
