# SPDX-License-Identifier: Apache-2.0
"""The AWS driver. It needs botocore, which the extra ``aws`` brings.

Where to begin to read:

* ``config.py``: what stands in the configuration;
* ``transport.py``: one call; ``client.py``: all calls that are made; ``errors.py``: what can go wrong;
* ``answers.py``: how lists of instances are read; ``types.py``: what AWS says; ``facts.py``: what of it seldom changes;
* ``instances.py``: how instances are listed, launched and deleted; ``launch_calls.py``: what launches send;
  ``launches.py``: launches that go in one call; ``quota.py``: limits;
* ``images.py``, ``image_store.py``: uploads of images, and what can be left over;
* ``adapter.py``: puts it all together for the framework in `nodepool.driver.statemachine`, and ``nodepool check``.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.aws.adapter import AwsAdapter
from nodepool.driver.aws.config import AwsProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class AwsDriver(StateMachineDriver):
    """``driver: aws``"""

    name = "aws"
    libraries = ("botocore",)

    def getProviderConfig(self, provider: dict[str, Any]) -> AwsProviderConfig:
        return AwsProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> AwsAdapter:
        return AwsAdapter(provider_config)
