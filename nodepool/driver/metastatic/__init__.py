# SPDX-License-Identifier: Apache-2.0
"""The metastatic driver: several nodes share one node of another provider (rules T).

* ``config.py``: the keys of the configuration file;
* ``provider.py``: slots as instances of a cloud, and the task that assigns them and takes over backing nodes;
* ``backing.py``: backing nodes, the nodes on them, the requests for backing nodes, and what is written into nodes.

The decisions are in `nodepool.plan.backing`.
"""

from __future__ import annotations

from nodepool.driver.metastatic.config import MetastaticProviderConfig
from nodepool.driver.metastatic.provider import MetastaticAdapter, MetastaticProvider
from nodepool.driver.statemachine.provider import CloudDriver


class MetastaticDriver(CloudDriver):
    """``driver: metastatic``"""

    name = "metastatic"
    config_class = MetastaticProviderConfig
    adapter_class = MetastaticAdapter
    provider_class = MetastaticProvider
