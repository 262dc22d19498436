# SPDX-License-Identifier: Apache-2.0
"""A launcher with the AWS provider ``region-a``, and the simulated region that it uses."""

from __future__ import annotations

from nodepool.driver.aws.adapter import AwsAdapter
from simulators.aws import AwsSimulator
from tests.support.cloud_place import CloudPlace


class AwsPlace(CloudPlace):
    """See `CloudPlace`."""

    simulator: AwsSimulator
    kinds = ("instances", "volumes")

    @property
    def adapter(self) -> AwsAdapter:
        adapter = self.provider.adapter
        assert isinstance(adapter, AwsAdapter)
        return adapter
