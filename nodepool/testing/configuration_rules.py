# SPDX-License-Identifier: Apache-2.0
"""Rules of reference/driver 1 and 4 to 6: the driver's entry point and its configuration."""

from __future__ import annotations

import copy
from typing import Final

import pytest

from nodepool.driver.config import DEFAULT_DRIVER, ConfigPool, ProviderConfig
from nodepool.driver.interface import Driver
from nodepool.testing.harness import DriverHarness

POOL_MEMBERS: Final = ("name", "labels", "max_servers", "node_attributes", "priority", "ignore_provider_quota", "azs")


class ConfigurationRules(DriverHarness):
    """Part of `nodepool.testing.contract.DriverContract`."""

    def test_driver_name(self, driver: Driver) -> None:
        """1: the name is what a configuration says under ``driver``."""
        assert driver.name == self.provider_section().get("driver", DEFAULT_DRIVER), f"name is {driver.name!r}"

    def test_reset(self, driver: Driver) -> None:
        """1: called before every load of the configuration, also before the first."""
        self.bounded("reset()", driver.reset)
        self.load(driver)
        self.bounded("reset()", driver.reset)
        self.load(driver)

    def test_provider_config(self, provider_config: ProviderConfig) -> None:
        """4: attributes that the framework reads."""
        section = self.provider_section()
        assert isinstance(provider_config, ProviderConfig), "getProviderConfig() must return a ProviderConfig"
        assert provider_config.name == section["name"], f"name is {provider_config.name!r}"
        assert provider_config.driver.name == section.get("driver", DEFAULT_DRIVER), (
            f"driver.name is {provider_config.driver.name!r}"
        )
        assert isinstance(provider_config.manage_images, bool), "manage_images must be a bool"
        assert isinstance(provider_config.max_concurrency, int), "max_concurrency must be an int"
        assert {pool["name"] for pool in section["pools"]} == set(provider_config.pools), "pools must have all pools"

    def test_pools(self, provider_config: ProviderConfig) -> None:
        """5: attributes of pools that the framework reads."""
        for name, pool in provider_config.pools.items():
            assert isinstance(pool, ConfigPool), f"pool {name} must be a ConfigPool"
            assert pool.name == name, f"pool {name} has the name {pool.name!r}"
            missing = [member for member in POOL_MEMBERS if not hasattr(pool, member)]
            assert not missing, f"pool {name} lacks {', '.join(missing)}"

    def test_supported_labels(self, provider_config: ProviderConfig) -> None:
        """4: a set of names; that of the provider is that of its pools together."""
        labels = provider_config.getSupportedLabels()
        assert isinstance(labels, set), f"getSupportedLabels() returns a {type(labels).__name__}, not a set"
        assert self.label in labels, f"getSupportedLabels() lacks {self.label!r}"
        each = [provider_config.getSupportedLabels(name) for name in provider_config.pools]
        assert set().union(*each) == labels, "labels of the pools together are not those of the provider"

    def test_load_tells_labels_their_pools(self, driver: Driver) -> None:
        """4: ``load`` appends each pool to the labels of the whole configuration."""
        provider_config, config = self.load(driver)
        for name in provider_config.getSupportedLabels():
            wanted = [p for p in provider_config.pools.values() if name in provider_config.getSupportedLabels(p.name)]
            found = config.labels[name].pools
            assert all(any(pool is other for other in found) for pool in wanted), f"label {name} lacks a pool"

    def test_schema_accepts_the_section(self, provider_config: ProviderConfig) -> None:
        """4: the schema is for the whole section."""
        provider_config.getSchema()(self.provider_section())

    @pytest.mark.parametrize("level", ["provider", "pool"])
    def test_schema_refuses_unknown_keys(self, provider_config: ProviderConfig, level: str) -> None:
        """4: a key that nobody knows is an error, so that a typing mistake is found."""
        import voluptuous

        section = self.provider_section()
        (section if level == "provider" else section["pools"][0])["no-such-key"] = 1
        with pytest.raises(voluptuous.Invalid, match="no-such-key"):
            provider_config.getSchema()(section)

    def test_schema_demands_a_name(self, provider_config: ProviderConfig) -> None:
        """4: ``name`` is required."""
        import voluptuous

        section = self.provider_section()
        del section["name"]
        with pytest.raises(voluptuous.Invalid):
            provider_config.getSchema()(section)

    def test_load_does_not_change_the_section(self, driver: Driver) -> None:
        """4: what stands in the file stays as it is."""
        section = self.provider_section()
        before = copy.deepcopy(section)
        self.load(driver, section)
        assert section == before, "load() changed the section"

    def test_equal_after_a_reload(self, driver: Driver) -> None:
        """6: the same section twice is equal, or each reload would replace the provider."""
        first, second = self.load(driver)[0], self.load(driver)[0]
        assert first == second, "two loads of the same section are not equal"

    def test_unequal_after_a_change(self, driver: Driver) -> None:
        """6: a change is seen."""
        section = self.provider_section()
        section["max-concurrency"] = 4711
        assert self.load(driver)[0] != self.load(driver, section)[0], "a changed max-concurrency is not seen"
        section = self.provider_section()
        section["pools"][0]["max-servers"] = 4711
        assert self.load(driver)[0] != self.load(driver, section)[0], "a changed max-servers of a pool is not seen"
