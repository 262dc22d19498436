# SPDX-License-Identifier: Apache-2.0
"""The AWS driver. It needs botocore, which the extra ``aws`` brings.

Where to begin to read:

* ``config.py``, ``image_config.py``, ``config_checks.py``: what stands in the configuration;
* ``transport.py``: one call; ``client.py``: all calls that are made; ``errors.py``: what can go wrong;
* ``answer_parser.py``, ``instance_list.py``: how lists of instances are read;
* ``types.py``: what AWS says; ``facts.py``: what of it seldom changes;
* ``launch_spec.py``: what an instance is to be like; ``creation.py``, ``launch_batch.py``: how it is made;
* ``fleet_spec.py``, ``fleet_creation.py``, ``fleet_client.py``, ``launch_templates.py``: fleets;
* ``host_creation.py``, ``host_client.py``: dedicated hosts;
* ``images.py``, ``import_upload.py``, ``object_upload.py``, ``block_upload.py``: uploads of images;
* ``ended.py``: why instances end; ``preflight.py``, ``check_client.py``: ``nodepool check``;
* ``instances.py``: what launches and deletions share; ``batch_tag.py``, ``batch_tags.py``: whose an instance is;
* ``resources.py``: what can be left over;
* ``adapter.py``: puts it all together for the framework in `nodepool.driver.statemachine`.

botocore is imported when a provider is made, that is, only if this driver is configured.
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
