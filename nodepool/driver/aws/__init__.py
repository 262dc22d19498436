# SPDX-License-Identifier: Apache-2.0
"""The AWS driver. It needs boto3, which the extra ``aws`` brings.

Where to begin to read:

* ``config.py``, ``image_config.py``, ``config_checks.py``: what stands in the configuration.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.aws.config import AwsProviderConfig
from nodepool.driver.statemachine.driver import StateMachineDriver


class AwsDriver(StateMachineDriver):
    """``driver: aws``"""

    name = "aws"
    libraries = ("boto3", "botocore")

    def getProviderConfig(self, provider: dict[str, Any]) -> AwsProviderConfig:
        return AwsProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> Any:
        raise NotImplementedError("this release checks sections of AWS, but does not launch there yet")
