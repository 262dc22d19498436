# SPDX-License-Identifier: Apache-2.0
"""Tables of configuration keys: every key stands in the reference, and every key of the contract is declared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from doc.source.extensions import config_keys
from nodepool.driver.registry import Drivers
from nodepool.model.config_keys import Key, Sections, keys_of

SOURCE: Final = Path(__file__).parents[5] / "doc" / "source"
PAGE: Final = SOURCE / "reference" / "configuration-keys.rst"

LOGIN: Final = "connection-type connection-port python-path shell-type"
PROVIDER: Final = "name driver max-concurrency priority"
POOL: Final = "name max-servers node-attributes priority"
#: Section -> names of the keys that users of Nodepool 11.0.0 have in their files, and of those that are ours.
CONTRACT: Final = {
    "nodepool.config.zookeeper.ZooKeeperSettings": "zookeeper-servers zookeeper-timeout "
    "zookeeper-tls.cert zookeeper-tls.key zookeeper-tls.ca",
    "nodepool.config.objects.TopLevel": "webapp.port webapp.listen_address webapp.builder-port webapp.zuul-url "
    "webapp.tls.cert webapp.tls.key webapp.auth.require-login webapp.auth.authenticators webapp.auth.operators "
    "webapp.allowed-hosts webapp.trusted-proxies "
    "webapp.origins tracing.enabled tracing.protocol tracing.endpoint tracing.service_name tracing.tls_cert "
    "tracing.tls_key tracing.tls_ca tracing.certificate_file tracing.insecure tracing.timeout tracing.compression "
    "elements-dir images-dir build-log-dir "
    "build-log-retention labels max-hold-age diskimages providers tenant-resource-limits",
    "nodepool.config.zookeeper.ZooKeeperServer": "host port chroot",
    "nodepool.config.objects.Label": "name min-ready max-ready-age",
    "nodepool.config.objects.DiskImage": "name abstract parent formats keep-formats delete-after-upload rebuild-age "
    "build-timeout release elements env-vars pause username python-path shell-type dib-cmd metadata",
    "nodepool.config.objects.TenantLimits": "tenant-name max-servers max-cores max-ram max-volumes max-volume-gb",
    "nodepool.config.webapp.Authenticator": "name driver client_id issuer_id audience uid_claim max_validity_time "
    "skew secret public_key client_secret scope keys_url",
    "nodepool.config.webapp.OperatorRule": "claim contains",
    "nodepool.driver.config.ProviderConfig": PROVIDER,
    "nodepool.driver.config.ConfigPool": POOL,
    "nodepool.driver.openstack.config.OpenStackProviderConfig": f"{PROVIDER} pools cloud region-name rate boot-timeout "
    "launch-timeout launch-retries image-upload-timeout image-name-format post-upload-hook clean-floating-ips "
    "clean-leaked-images port-cleanup-interval nodepool-id diskimages cloud-images",
    "nodepool.driver.openstack.config.ProviderDiskImage": "name pause config-drive meta connection-type "
    "connection-port",
    "nodepool.driver.openstack.config.CloudImage": f"name config-drive image-id image-name username {LOGIN}",
    "nodepool.driver.openstack.config.OpenStackPool": f"{POOL} labels max-cores max-ram max-volumes max-volume-gb "
    "ignore-provider-quota availability-zones networks security-groups auto-floating-ip host-key-checking",
    "nodepool.driver.openstack.config.OpenStackLabel": "name diskimage cloud-image flavor-name min-ram key-name "
    "console-log boot-from-volume volume-size instance-properties dynamic-instance-properties userdata networks "
    "host-key-checking",
    "nodepool.driver.static.config.StaticProviderConfig": f"{PROVIDER} pools quarantine-after",
    "nodepool.driver.static.config.StaticPool": f"{POOL} nodes",
    "nodepool.driver.static.config.StaticNode": "name labels host-key host-key-checking timeout ssh-port username "
    f"max-parallel-jobs quarantine-after {LOGIN}",
    "nodepool.driver.metastatic.config.MetastaticProviderConfig": f"{PROVIDER} pools launch-retries launch-timeout "
    "boot-timeout rate",
    "nodepool.driver.metastatic.config.MetastaticPool": f"{POOL} labels host-key-checking",
    "nodepool.driver.metastatic.config.MetastaticLabel": "name backing-label max-parallel-jobs grace-time "
    "min-retention-time max-age host-key-checking",
}
DRIVERS: Final = ("openstack", "static", "metastatic", "example", "fake")
#: Driver -> directories with its pages: the keys that it has of another driver are in the pages of that one.
PAGES: Final = {
    "openstack": ("openstack",),
    "aws": ("aws",),
    "azure": ("azure",),
    "gce": ("gce",),
    "ibmvpc": ("ibmvpc",),
    "kubernetes": ("kubernetes",),
    "openshift": ("openshift", "kubernetes"),
    "openshiftpods": ("openshiftpods", "openshift", "kubernetes"),
    "static": ("static",),
    "metastatic": ("metastatic",),
}


def sections(top: type) -> set[type]:
    """A section and those within it."""
    found = {top}
    for key in keys_of(top):
        if isinstance(key.kind, Sections):
            found |= sections(key.kind.section)
    return found


def rows(page: Path) -> list[tuple[str, ...]]:
    """The cells of all tables of a page, as a reader sees them."""
    text = config_keys.expand(page.read_text(encoding="utf-8"))
    return re.findall(r"^   \* - (.*)\n     - (.*)\n     - (.*)\n     - (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("path", CONTRACT)
def test_keys_of_the_contract_are_declared(path: str) -> None:
    """Files that can be loaded today can be loaded tomorrow; none that does not exist is declared."""
    assert sorted(key.name for key in keys_of(config_keys.section(path))) == sorted(CONTRACT[path].split())


@pytest.mark.parametrize("top", [*CONTRACT, *DRIVERS])
def test_every_key_is_in_the_reference(top: str) -> None:
    """All sections within a section have their table, too."""
    kind = config_keys.section(top) if top in CONTRACT else type(Drivers.get(top).getProviderConfig({"name": "x"}))
    shown = set(rows(PAGE))
    for section in sections(kind):
        for key in keys_of(section):
            row = (f"``{key.name}``", config_keys.type_text(key), config_keys.default_text(key), key.help)
            assert row in shown, f"{section.__name__}: {key.name}"


@pytest.mark.parametrize("driver", PAGES)
def test_every_key_is_in_the_pages_of_its_driver(driver: str) -> None:
    """Those of every provider and pool are in the reference of the file."""
    pages = [page for name in PAGES[driver] for page in sorted((SOURCE / "drivers" / name).glob("*.rst"))]
    shown = {row for page in [*pages, PAGE] for row in rows(page)}
    kind = type(Drivers.get(driver).getProviderConfig({"name": "x"}))
    missing = [
        f"{section.__name__}: {key.name}"
        for section in sections(kind)
        for key in keys_of(section)
        if (f"``{key.name}``", config_keys.type_text(key), config_keys.default_text(key), key.help) not in shown
    ]
    assert not missing


@pytest.mark.parametrize(
    "page",
    [SOURCE / "reference" / "configuration-file.rst", *sorted(SOURCE.glob("drivers/*/configuration.rst"))],
    ids=lambda page: str(page.relative_to(SOURCE)),
)
def test_pages_use_the_directive(page: Path) -> None:
    assert "``" in config_keys.expand(page.read_text(encoding="utf-8"))
    assert config_keys.DIRECTIVE.search(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", sorted(set(rows(PAGE))), ids=lambda row: str(row[0]))
def test_nothing_is_left_out(row: tuple[str, ...]) -> None:
    """A reader finds what a key may be, what is so without it, and what it means."""
    assert all(row)
    assert row[0] == "Key" or row[3].endswith(".")


def named(name: str, section: str) -> Key:
    (key,) = (key for key in keys_of(config_keys.section(section)) if key.name == name)
    return key


@pytest.mark.parametrize(
    ("section", "name", "expected"),
    [
        ("driver.config.ProviderConfig", "name", ("text, not empty", "required")),
        ("driver.config.ProviderConfig", "priority", ("whole number", "100")),
        ("driver.config.ConfigPool", "priority", ("whole number", "the provider's")),
        ("driver.config.ConfigPool", "max-servers", ("whole number", "unlimited")),
        ("driver.openstack.config.OpenStackPool", "auto-floating-ip", ("true or false", "true")),
        ("driver.openstack.config.OpenStackPool", "labels", ("list of sections", "none")),
        (
            "driver.openstack.config.OpenStackProviderConfig",
            "rate",
            ("number, 0 or more; seconds", "by the cloud's answers"),
        ),
        ("driver.static.config.StaticNode", "connection-type", ("text", "``ssh``")),
        ("config.objects.DiskImage", "env-vars", ("mapping", "none")),
        ("config.objects.TopLevel", "webapp.port", ("whole number, 0 to 65535", "8005")),
    ],
)
def test_cells(section: str, name: str, expected: tuple[str, str]) -> None:
    key: Any = named(name, f"nodepool.{section}")
    assert (config_keys.type_text(key), config_keys.default_text(key)) == expected
