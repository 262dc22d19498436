# SPDX-License-Identifier: Apache-2.0
"""Configuration of the example driver.

::

    providers:
      - name: somewhere
        driver: example
        url: http://127.0.0.1:8910
        rate: 10                  # calls per second of each class: those that read, those that change
        diskimages:
          - name: fedora          # built here and uploaded
        cloud-images:
          - name: debian          # is there already
            username: debian
        pools:
          - name: main
            max-servers: 10
            labels:
              - name: small
                cloud-image: debian
                size: small
"""

from __future__ import annotations

from nodepool.driver.config import ImageSettings
from nodepool.driver.framework.sections import CloudProviderConfig, DeclaredPool, DiskImageSettings, ImageLabel
from nodepool.model.config_keys import FILLED_TEXT, REQUIRED, WHOLE, ListOf, Number, Sections, key, with_default


# [label]
class ExampleLabel(ImageLabel):
    """How to make a node of a label. Exactly one of the two images is set."""

    size: str = key(FILLED_TEXT, REQUIRED, "Size of the machine: ``small``, ``medium`` or ``large``.")


# [pool]
class ExamplePool(DeclaredPool):
    """A slice of the cloud."""

    max_cores: int | None = key(WHOLE, None, "Cores that the nodes may use.", default_text="unlimited")
    max_ram: int | None = key(WHOLE, None, "Memory that the nodes may use.", unit="MiB", default_text="unlimited")
    azs: list[str] | None = key(
        ListOf(FILLED_TEXT), None, "One is chosen for each request.", name="availability-zones", default_text="all"
    )
    labels: dict[str, ExampleLabel] = key(Sections(ExampleLabel), None, "What nodes are made of.")


# [provider]
class ExampleProviderConfig(CloudProviderConfig[ExamplePool]):
    """One ``providers[]`` section with ``driver: example``."""

    # Read by the builder.
    image_type = "qcow2"

    url: str = key(FILLED_TEXT, REQUIRED, "Address of the cloud.")
    rate: float = key(Number(0), 10.0, "Calls per second that read, and as many that change something; 0 = no limit.")
    launch_timeout: float = with_default(CloudProviderConfig.launch_timeout, 600.0)
    diskimages: dict[str, DiskImageSettings] = key(Sections(DiskImageSettings), None, "Images that are uploaded.")
    cloud_images: dict[str, ImageSettings] = key(Sections(ImageSettings), None, "Images that are in the cloud.")
    _pools: dict[str, ExamplePool] = key(Sections(ExamplePool), None, "The pools of the provider.", name="pools")
