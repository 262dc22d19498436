# SPDX-License-Identifier: Apache-2.0
"""The simulated IBM VPC region as a process of its own, and a provider that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.support.public_cloud import public_cloud
from benchmarks.support.simulated_cloud import LABEL
from benchmarks.support.simulator_process import simulator_process
from simulators.ibmvpc import IbmVpcSettings, IbmVpcSimulatorClient, write_credentials
from simulators.ibmvpc.images import IMAGE_NAME
from tests.support.section_provider import SectionProvider

PROVIDER, POOL = "ibm-one", "main"
#: The addresses of IBM Cloud: the released driver takes no others.
HOSTS: Final = ("iam.cloud.ibm.com", "us-south.iaas.cloud.ibm.com", "resource-controller.cloud.ibm.com")


def ibmvpc_provider(credentials: Path, rate: float, addresses: bool, kept: int) -> SectionProvider:
    """A provider with one pool and one label.

    :param addresses: nodes get floating IPs.
    :param kept: so many of them are kept for later nodes.
    """
    image = {"name": "debian", "username": "root", "image-name": IMAGE_NAME, "keys": ["zuul"]}
    label = {"name": LABEL, "cloud-image": "debian", "profile": "cx2-2x4"}
    section: dict[str, Any] = {
        "name": PROVIDER,
        "driver": "ibmvpc",
        "vpc": "ci",
        "region": "us-south",
        "zone": "us-south-1",
        "subnet": "ci-us-south-1",
        "credentials-file": str(credentials),
        "public-ipv4": addresses,
        "floating-ip-pool": kept,
        "use-internal-ip": not addresses,
        "host-key-checking": False,
        "boot-timeout": 300,
        "rate": rate,
        "cloud-images": [image],
        "pools": [{"name": POOL, "max-servers": 1000, "labels": [label]}],
    }
    return SectionProvider(section)


@contextmanager
def simulated_ibm_cloud(directory: Path, settings: dict[str, Any]) -> Iterator[tuple[IbmVpcSimulatorClient, Path]]:
    """Starts it at the addresses of IBM; gives a client, and the path of the credentials. All ends with the block.

    :param settings: as `simulators.ibmvpc.IbmVpcSettings`.
    """
    login = {"VPC_AUTH_TYPE": "iam", "VPC_APIKEY": IbmVpcSettings.api_key}
    credentials = write_credentials(directory / "ibm.env", login)
    with simulator_process("simulators.ibmvpc", IbmVpcSimulatorClient, directory, settings) as client:
        # As in an account that is in use: the group of the pool is there.
        client.add("resource_group", name=f"np_{PROVIDER}_{POOL}")
        with public_cloud(directory, client.url, HOSTS):
            yield client, credentials
