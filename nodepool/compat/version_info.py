# SPDX-License-Identifier: Apache-2.0
"""`nodepool.version.version_info` of 11.0.0."""

from __future__ import annotations

from typing import Final

from nodepool.version import DISTRIBUTION, release_string


class VersionInfo:
    """The methods of ``pbr.version.VersionInfo`` that are in use."""

    package = DISTRIBUTION

    def release_string(self) -> str:
        """The release, e.g. ``12.0.0``."""
        return release_string()

    def version_string(self) -> str:
        """The release without what follows its three numbers."""
        return ".".join(release_string().split(".")[:3])

    def __str__(self) -> str:
        return self.version_string()


version_info: Final = VersionInfo()
