# SPDX-License-Identifier: Apache-2.0
"""Places of the simulated Google Cloud, and the links that its resources have. Pure."""

from __future__ import annotations

from typing import Final

#: Of the user; and of the images that everybody may use.
PROJECT: Final = "nodepool-ci"
IMAGE_PROJECT: Final = "debian-cloud"
PROJECT_NUMBER: Final = "123456789012"
REGIONS: Final = {
    "us-central1": ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"),
    "europe-west1": ("europe-west1-b", "europe-west1-c", "europe-west1-d"),
}
ZONES: Final = {zone: region for region, zones in REGIONS.items() for zone in zones}
GLOBAL: Final = "global"
#: Links have this address, whatever address a client used.
ROOT: Final = "https://www.googleapis.com/compute/v1/"


def zone_scope(zone: str) -> str:
    return f"zones/{zone}"


def region_scope(region: str) -> str:
    return f"regions/{region}"


def path_of(project: str, scope: str, collection: str, name: str) -> str:
    """Such as ``projects/P/zones/Z/instances/N``."""
    return f"projects/{project}/{scope}/{collection}/{name}"


def link(path: str) -> str:
    """The whole address of a path."""
    return ROOT + path


def read_link(text: object, project: str = PROJECT) -> str:
    """The path of a link, as clients may write it: whole, from ``projects/`` on, or from its scope on.

    :returns: "" = it is none.
    """
    if not isinstance(text, str):
        return ""
    if text.startswith(("https://", "http://")):
        found = text.partition("/compute/v1/")[2] or text.partition("/compute/beta/")[2]
        return found if found.startswith("projects/") else ""
    text = text.removeprefix("/")
    if text.startswith("projects/"):
        return text
    return f"projects/{project}/{text}" if text.startswith(("zones/", "regions/", "global/")) else ""
