# SPDX-License-Identifier: Apache-2.0
"""What it costs to read a list of instances of EC2: by botocore, and by readers that look only for what is used.

::

    python -m benchmarks.aws_lists [--instances 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from botocore.parsers import create_parser
from botocore.session import Session

from nodepool.driver.aws.types import AwsRecord, instances_in

#: An instance as EC2 shows it, with all that a usual one has.
_INSTANCE = """
<item><reservationId>r-{number:017x}</reservationId><ownerId>123456789012</ownerId><groupSet/><instancesSet><item>
<instanceId>i-{number:017x}</instanceId><imageId>ami-0123456789abcdef0</imageId>
<instanceState><code>16</code><name>running</name></instanceState>
<privateDnsName>ip-10-0-{high}-{low}.eu-north-1.compute.internal</privateDnsName>
<dnsName>ec2-16-16-{high}-{low}.eu-north-1.compute.amazonaws.com</dnsName><reason/><keyName>zuul</keyName>
<amiLaunchIndex>0</amiLaunchIndex><productCodes/><instanceType>t3.medium</instanceType>
<launchTime>2026-01-01T00:00:00.000Z</launchTime>
<placement><availabilityZone>eu-north-1a</availabilityZone><groupName/><tenancy>default</tenancy></placement>
<monitoring><state>disabled</state></monitoring><subnetId>subnet-0123456789abcdef0</subnetId>
<vpcId>vpc-0123456789abcdef0</vpcId><privateIpAddress>10.0.{high}.{low}</privateIpAddress>
<ipAddress>16.16.{high}.{low}</ipAddress><sourceDestCheck>true</sourceDestCheck>
<groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>zuul</groupName></item></groupSet>
<architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/sda1</rootDeviceName>
<blockDeviceMapping><item><deviceName>/dev/sda1</deviceName><ebs><volumeId>vol-{number:017x}</volumeId>
<status>attached</status><attachTime>2026-01-01T00:00:01.000Z</attachTime>
<deleteOnTermination>true</deleteOnTermination></ebs></item></blockDeviceMapping>
<virtualizationType>hvm</virtualizationType><clientToken>np-{number:032x}-{number:016x}</clientToken>
<tagSet><item><key>Name</key><value>np{number:010d}</value></item>
<item><key>nodepool_node_id</key><value>{number:010d}</value></item>
<item><key>nodepool_pool_name</key><value>main</value></item>
<item><key>nodepool_provider_name</key><value>ec2-north</value></item></tagSet><hypervisor>xen</hypervisor>
<networkInterfaceSet><item><networkInterfaceId>eni-{number:017x}</networkInterfaceId>
<subnetId>subnet-0123456789abcdef0</subnetId><vpcId>vpc-0123456789abcdef0</vpcId><description/>
<ownerId>123456789012</ownerId><status>in-use</status><macAddress>06:00:00:00:00:01</macAddress>
<privateIpAddress>10.0.{high}.{low}</privateIpAddress><sourceDestCheck>true</sourceDestCheck>
<groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>zuul</groupName></item></groupSet>
<attachment><attachmentId>eni-attach-{number:017x}</attachmentId><deviceIndex>0</deviceIndex><status>attached</status>
<attachTime>2026-01-01T00:00:00.000Z</attachTime><deleteOnTermination>true</deleteOnTermination></attachment>
<association><publicIp>16.16.{high}.{low}</publicIp><ipOwnerId>amazon</ipOwnerId></association>
<privateIpAddressesSet><item><privateIpAddress>10.0.{high}.{low}</privateIpAddress><primary>true</primary>
<association><publicIp>16.16.{high}.{low}</publicIp><ipOwnerId>amazon</ipOwnerId></association></item>
</privateIpAddressesSet><ipv6AddressesSet><item><ipv6Address>2a05::{number:x}</ipv6Address></item></ipv6AddressesSet>
</item></networkInterfaceSet><ebsOptimized>false</ebsOptimized><enaSupport>true</enaSupport>
<cpuOptions><coreCount>1</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>
<capacityReservationSpecification><capacityReservationPreference>open</capacityReservationPreference>
</capacityReservationSpecification><hibernationOptions><configured>false</configured></hibernationOptions>
<metadataOptions><state>applied</state><httpTokens>required</httpTokens><httpPutResponseHopLimit>2
</httpPutResponseHopLimit><httpEndpoint>enabled</httpEndpoint></metadataOptions>
<enclaveOptions><enabled>false</enabled></enclaveOptions><bootMode>uefi-preferred</bootMode>
<platformDetails>Linux/UNIX</platformDetails><usageOperation>RunInstances</usageOperation>
<usageOperationUpdateTime>2026-01-01T00:00:00.000Z</usageOperationUpdateTime>
<maintenanceOptions><autoRecovery>default</autoRecovery></maintenanceOptions></item></instancesSet></item>"""


def answer(instances: int) -> bytes:
    """An answer of DescribeInstances."""
    items = (_INSTANCE.format(number=number, high=number // 250, low=number % 250) for number in range(instances))
    text = "".join(items).replace("\n", "")
    name, space = "DescribeInstancesResponse", "http://ec2.amazonaws.com/doc/2016-11-15/"
    head = f'<?xml version="1.0" encoding="UTF-8"?><{name} xmlns="{space}">'
    tail = f"<reservationSet>{text}</reservationSet></{name}>"
    return f"{head}<requestId>8f7724cf-496f-496e-8fe3-example</requestId>{tail}".encode()


def by_botocore(body: bytes) -> list[AwsRecord]:
    """As the driver did it before."""
    parsed = create_parser("ec2").parse({"body": body, "headers": {}, "status_code": 200}, _shape())
    return [AwsRecord(data) for reservation in parsed["Reservations"] for data in reservation["Instances"]]


def by_driver(body: bytes) -> list[AwsRecord]:
    """With the reader of the driver."""
    return [AwsRecord(data) for data in instances_in(body)[0]]


@cache
def _shape() -> Any:
    """It takes longer to load than what is measured."""
    return Session().get_service_model("ec2").operation_model("DescribeInstances").output_shape


def seconds(read: Callable[[bytes], list[AwsRecord]], body: bytes, rounds: int) -> list[float]:
    """CPU of this thread in each round."""
    found = []
    for _ in range(rounds):
        began = time.thread_time()
        read(body)
        found.append(time.thread_time() - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    body = answer(arguments.instances)
    readers = {"botocore": by_botocore, "driver": by_driver}
    if by_botocore(body) != by_driver(body):
        raise SystemExit("the readers do not find the same")
    print(f"{arguments.instances} instances, {len(body) / 1e6:.2f} MB")
    for name, read in readers.items():
        found = seconds(read, body, arguments.rounds)
        print(f"{name:10} {statistics.median(found):.3f} s of CPU ({min(found):.3f}-{max(found):.3f})")


if __name__ == "__main__":
    main()
