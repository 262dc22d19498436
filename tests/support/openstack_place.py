# SPDX-License-Identifier: Apache-2.0
"""A launcher with OpenStack providers, and the simulated cloud that they use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from nodepool.driver.openstack import OpenStackAdapter
from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from tests.support.cloud_place import CloudPlace
from tests.support.pool_znodes import PoolZnodes


class Place(CloudPlace):
    """A launcher with the OpenStack provider ``cloud-a``, and its cloud.

    :param clouds_file: the clouds.yaml that the launcher reads.
    """

    kinds = ("servers", "ports", "floating_ips", "volumes")

    def __init__(
        self, simulator: OpenStackSimulator, znodes: PoolZnodes, section: dict[str, Any], clouds_file: Path
    ) -> None:
        super().__init__(simulator, znodes, section)
        self.clouds_file = clouds_file
        #: What it says; see `write_clouds`.
        self.clouds: dict[str, Any] = {CLOUD_NAME: simulator.clouds_yaml_entry()}

    @property
    def adapter(self) -> OpenStackAdapter:
        adapter = self.provider.adapter
        assert isinstance(adapter, OpenStackAdapter)
        return adapter

    def write_clouds(self, **changes: Any) -> None:
        """Write clouds.yaml at one blow, as a careful editor does.

        :param changes: clouds that are different this time.
        """
        new = self.clouds_file.with_suffix(".new")
        new.write_text(yaml.safe_dump({"clouds": {**self.clouds, **changes}}), encoding="utf-8")
        new.replace(self.clouds_file)
