# SPDX-License-Identifier: Apache-2.0
"""Names and metadata of uploaded images, and how an image is recognised by them (rules U-3, U-4, D-1, R-4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.statemachine import metadata
from nodepool.exceptions import BuilderError
from nodepool.model.image import ImageUpload

#: A time in the name of an image is that of its record, give or take so many seconds.
_NAME_SECONDS: Final = 3600.0


def external_name(form: str, image: str, upload_id: str, timestamp: int) -> str:
    """Name of an image in the cloud (U-3).

    :param form: ``image-name-format``.
    :param timestamp: seconds since the epoch.
    :raises BuilderError: the format has a field that there is not.
    """
    try:
        return form.format(image_name=image, upload_id=upload_id, timestamp=str(timestamp))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise BuilderError(
            f"image-name-format {form!r} cannot be used: {type(error).__name__}: {error}; it knows the fields "
            "image_name, upload_id and timestamp"
        ) from error


def properties(
    of_image: Mapping[str, Any], provider_image: Any, provider: str, build_id: str, upload_id: str
) -> dict[str, Any]:
    """What is stored with the image (U-4): of the image, of the provider's image, and whose it is (D-1).

    :param of_image: ``metadata`` of the image.
    :param provider_image: ``meta``, or ``tags`` as some drivers call it, win over it.
    """
    own = getattr(provider_image, "meta", None) or getattr(provider_image, "tags", None) or {}
    ours = {
        metadata.PROVIDER_KEY: provider,
        metadata.BUILD_KEY: build_id,
        metadata.UPLOAD_KEY: upload_id,
    }
    return {**of_image, **own, **ours}


def is_of_upload(image: ListedImage, provider: str, build_id: str, upload_id: str, record: ImageUpload | None) -> bool:
    """Is an image in the cloud what an upload has made there (R-4)?

    By its ids. An image that has none of ours, because the cloud keeps none or they were to be added later, is known by
    its name, if nothing else can have the same: it holds the time of the upload.

    :param record: of the upload; None = it is unreadable.
    """
    ids = metadata.upload_of(image.metadata, provider)
    if ids is not None:
        return ids == (build_id, upload_id)
    if metadata.PROVIDER_KEY in image.metadata or record is None or not record.external_name:
        return False
    return image.name == record.external_name and _tells_time(record.external_name, record.state_time or 0.0)


def _tells_time(name: str, seconds: float) -> bool:
    return any(abs(int(digits) - seconds) < _NAME_SECONDS for digits in re.findall(r"\d{9,11}", name))
