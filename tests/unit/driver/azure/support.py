# SPDX-License-Identifier: Apache-2.0
"""A provider section, and an adapter of it at a simulated subscription."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from nodepool.driver.azure import AzureDriver
from nodepool.driver.azure.adapter import AzureAdapter
from nodepool.driver.azure.config import AzureProviderConfig
from nodepool.driver.statemachine import instance
from simulators.azure import AzureSettings, AzureSimulator
from tests.support.provider_sections import load_section, section_with
from tests.unit.driver.simulated_adapter import NODE, SimulatedAdapter, simulated

PROVIDER = "north"
METADATA = instance.for_node(NODE, "main", PROVIDER)
Here: TypeAlias = SimulatedAdapter[AzureSimulator, AzureAdapter]

_SECTION: dict[str, Any] = {
    "name": PROVIDER,
    "driver": "azure",
    "location": "northeurope",
    "resource-group": "nodepool",
    "resource-group-location": "northeurope",
    "network": "ci",
    "rate": 0,
    "cloud-images": [
        {
            "name": "debian",
            "username": "zuul",
            "key": "ssh-ed25519 AAAA",
            "image-reference": {"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"},
        }
    ],
    "pools": [
        {
            "name": "main",
            "labels": [
                {"name": "small", "cloud-image": "debian", "hardware-profile": {"vm-size": "Standard_B1s"}},
            ],
        }
    ],
}


def section(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **provider: Any) -> dict[str, Any]:
    """A provider section with one label.

    :param label: more keys of it; ``pool`` and ``provider`` likewise, with ``-`` for ``_``.
    """
    return section_with(_SECTION, label, pool, **provider)


def load(data: dict[str, Any]) -> AzureProviderConfig:
    """Load a section in a configuration that has its labels and images."""
    made: AzureProviderConfig = load_section(AzureDriver(), data)
    return made


def label_of(config: AzureProviderConfig) -> Any:
    return config.pools["main"].labels["small"]


@contextmanager
def at_simulator(directory: Path, data: dict[str, Any], **settings: Any) -> Iterator[Here]:
    """An adapter of a section.

    :param settings: of the simulator.
    """
    with AzureSimulator(AzureSettings(**settings)) as simulator:
        auth = simulator.write_auth_file(directory / "auth.json")
        with simulated(simulator, AzureAdapter(load({**data, "auth-path": str(auth)})), uncounted=["images"]) as made:
            yield made


def certificate_pem() -> bytes:
    """A certificate that signs itself, and its key."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nodepool")])
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private
