# SPDX-License-Identifier: Apache-2.0
"""A provider section that cannot be used, or whose driver is not here: kept, so that the rest of the file counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodepool.driver.config import ConfigPool, ProviderConfig

if TYPE_CHECKING:
    from nodepool.config.objects import Config


class UnavailableProviderConfig(ProviderConfig):
    """Offers no pool and no label. The launcher logs ``reason`` and treats the provider as absent.

    :param reason: why it cannot work, one line.
    """

    def __init__(self, provider: dict[str, Any], reason: str) -> None:
        super().__init__(provider)
        self.reason = reason

    @property
    def pools(self) -> dict[str, Any]:
        return {}

    @property
    def manage_images(self) -> bool:
        return False

    def load(self, newconfig: Config) -> None:
        return

    def getSchema(self) -> Any:
        """The common keys; what else the section holds is not known here."""
        import voluptuous as v

        pool = v.Schema(ConfigPool.getCommonSchemaDict(), extra=v.ALLOW_EXTRA)
        return v.Schema({**self.getCommonSchemaDict(), "pools": [pool]}, extra=v.ALLOW_EXTRA)
