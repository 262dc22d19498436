# SPDX-License-Identifier: Apache-2.0
"""The driver of Google Compute Engine. Of Google's libraries it needs only google-auth: it makes less than thirty
kinds of calls.

Where to begin to read:

* ``config.py``, ``image_config.py``, ``config_checks.py``: what stands in the configuration;
* ``login.py``: tokens; ``client.py``: all calls for instances; ``types.py``: what Compute Engine says; ``errors.py``:
  what can go wrong;
* ``facts.py``: what seldom changes; ``quota.py``, ``quota_names.py``: limits;
* ``silent_zones.py``: zones that do not answer;
* ``names.py``, ``labels.py``, ``places.py``, ``launch_spec.py``: what an instance is to be like; ``creation.py``: how
  it is made; ``operations.py``: how its creation ends; ``preemptions.py``: which spot instances were taken away;
* ``instances.py``: what launches and deletions share;
* ``image_calls.py``, ``images.py``, ``object_upload.py``, ``tarball.py``: uploads;
* ``preflight.py``: what ``nodepool check`` looks at;
* ``adapter.py``: puts it all together for the framework in `nodepool.driver.statemachine`.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.gce.adapter import GceAdapter
from nodepool.driver.gce.config import GceProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class GceDriver(StateMachineDriver):
    """``driver: gce``"""

    name = "gce"
    libraries = ("google.auth",)

    def getProviderConfig(self, provider: dict[str, Any]) -> GceProviderConfig:
        return GceProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> GceAdapter:
        return GceAdapter(provider_config)
