# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about a provider with an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nodepool.driver import gateway
from nodepool.driver.framework.check_result import CheckResult, failure
from nodepool.driver.statemachine import metadata, node_fields
from nodepool.exceptions import LaunchError, RuntimeConfigurationException
from nodepool.plan.attention import look_at_place, of_missing
from nodepool.plan.ownerless import OTHERS, end_of_other, of_other

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.statemachine.adapter import Adapter
    from nodepool.driver.statemachine.instance import Instance
    from nodepool.driver.statemachine.lost_instances import LostInstances
    from nodepool.model.image import ImageUpload


def checks(
    config: ProviderConfig,
    adapter: Adapter,
    newest_upload: Callable[[str], ImageUpload | None] | None,
    instances: Callable[[], Iterable[Instance]],
    lost: LostInstances,
) -> Iterator[CheckResult]:
    """What the adapter says, whether the images of labels are uploaded, whether another installation has instances
    of the provider's name, and whether the instances of the nodes are there. Blocks as long as the adapter does.

    :param newest_upload: of an image to the provider; None = ZooKeeper cannot be asked.
    :param instances: lists those of the cloud.
    """
    found = gateway.preflight_in_cloud(config.name, adapter)
    yield from found
    if newest_upload is not None:
        yield from _upload_checks(config, newest_upload)
        # Of a cloud in trouble the first errors say it all.
        if all(result.ok for result in found):
            yield from _instance_checks(config.name, instances, lost)


def _instance_checks(
    name: str, instances: Callable[[], Iterable[Instance]], lost: LostInstances
) -> Iterator[CheckResult]:
    """D-9, D-10. Other resources are not listed: some drivers clean up meanwhile."""
    alive = lost.alive()
    try:
        listed = list(instances())
    except (LaunchError, RuntimeConfigurationException) as error:
        yield failure(OTHERS, error)
        return
    for other, count in sorted(metadata.others((one.metadata for one in listed), name).items()):
        yield CheckResult(OTHERS, True, of_other(name, other, count), end_of_other(name, other))
    missing = sorted(lost.missing(alive, listed))
    if missing:
        yield CheckResult("instances of nodes", True, of_missing(name, missing), look_at_place())


def _upload_checks(config: ProviderConfig, newest_upload: Callable[[str], Any]) -> Iterator[CheckResult]:
    """One result for each image that labels of the provider use."""
    labels: dict[str, list[str]] = {}
    for pool in config.pools.values():
        # Of a provider without labels of its own these are names.
        found = pool.labels.values() if isinstance(pool.labels, dict) else ()
        for label in found:
            image = node_fields.diskimage_of(label)
            if image is not None:
                labels.setdefault(str(image.name), []).append(label.name)
    for name, users in labels.items():
        subject = f"diskimage {name}"
        upload = newest_upload(name)
        if upload is None:
            text = f"there is no ready upload of it for the label(s) {', '.join(dict.fromkeys(users))}"
            yield CheckResult(
                subject, False, text, "look with nodepool dib-image-list and image-list why; is it paused?"
            )
        else:
            yield CheckResult(subject, True, f"build {upload.build_id} is uploaded")
