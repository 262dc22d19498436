# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about a provider with an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from nodepool.driver import gateway
from nodepool.driver.framework.check_result import CheckResult
from nodepool.driver.statemachine import node_fields

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.statemachine.adapter import Adapter
    from nodepool.model.image import ImageUpload


def checks(
    config: ProviderConfig, adapter: Adapter, newest_upload: Callable[[str], ImageUpload | None] | None
) -> Iterator[CheckResult]:
    """What the adapter says, and whether the images of labels are uploaded. Blocks as long as the adapter does.

    :param newest_upload: of an image to the provider; None = ZooKeeper cannot be asked.
    """
    yield from gateway.preflight_in_cloud(config.name, adapter)
    if newest_upload is not None:
        yield from _upload_checks(config, newest_upload)


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
