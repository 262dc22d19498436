# SPDX-License-Identifier: Apache-2.0
"""A parser of answers for botocore's clients: lists of instances are read by `instances_in`, all else by botocore.

botocore takes each XML for an answer in which all is left out, also the page of a proxy: what is not there would be
taken for deleted. Imports botocore, when `nodepool.driver.aws.transport` makes its session. First the parser, then how
it reads instances.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.etree import ElementTree

from botocore.parsers import EC2QueryParser, ResponseParserError, ResponseParserFactory

_LIST: Final = "DescribeInstancesResult"
#: How answers of EC2 begin: ``<RunInstancesResponse``.
_ANSWER: Final = re.compile(rb"\s*(?:<\?xml[^>]*>)?\s*<\w+Response\b")
_SHOWN_BYTES: Final = 100


class _Ec2Parser(EC2QueryParser):  # type: ignore[misc,unused-ignore]
    """That of botocore, but for one answer, and for what is none."""

    def parse(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        """See botocore. What is no list of instances, such as an error, is left to it."""
        worked = response["status_code"] < 300
        if not worked or shape is None or shape.name != _LIST:
            if worked and not _ANSWER.match(response["body"]):
                begin = response["body"][:_SHOWN_BYTES]
                raise ResponseParserError(f"EC2 does not answer, but somebody else: {begin!r}")
            parsed: dict[str, Any] = super().parse(response, shape)
            return parsed
        try:
            instances, token = instances_in(response["body"])
        except (ElementTree.ParseError, ValueError) as error:
            raise ResponseParserError(f"the list of instances cannot be read: {error}") from error
        metadata = {"HTTPStatusCode": response["status_code"], "HTTPHeaders": dict(response["headers"])}
        found: dict[str, Any] = {"Reservations": [{"Instances": instances}], "ResponseMetadata": metadata}
        return {**found, "NextToken": token} if token else found


class AnswerParsers(ResponseParserFactory):  # type: ignore[misc,unused-ignore]
    """Component ``response_parser_factory`` of a session."""

    def create_parser(self, protocol_name: str) -> Any:
        """See botocore."""
        if protocol_name == "ec2":
            return _Ec2Parser(**self._defaults)
        return super().create_parser(protocol_name)


# Reads the answers of DescribeInstances: only what the driver uses, and for that in a third of the time of botocore.
#
# What it makes is a part of what botocore makes of the same answer; see `nodepool.driver.aws.types.AwsRecord.of`.

#: Name in the answer -> its name for botocore, and how its content is read: None = as text, a mapping = as such a
#: structure, a list = as a list of such structures.
_Fields = Mapping[str, tuple[str, Any]]
_IPV6: Final[_Fields] = {"ipv6Address": ("Ipv6Address", None)}
_INSTANCE: Final[_Fields] = {
    "instanceId": ("InstanceId", None),
    "instanceType": ("InstanceType", None),
    "instanceLifecycle": ("InstanceLifecycle", None),
    "ipAddress": ("PublicIpAddress", None),
    "privateIpAddress": ("PrivateIpAddress", None),
    "amiLaunchIndex": ("AmiLaunchIndex", None),
    "instanceState": ("State", {"name": ("Name", None)}),
    "stateReason": ("StateReason", {"code": ("Code", None), "message": ("Message", None)}),
    "placement": ("Placement", {"availabilityZone": ("AvailabilityZone", None), "hostId": ("HostId", None)}),
    "tagSet": ("Tags", [{"key": ("Key", None), "value": ("Value", None)}]),
    "blockDeviceMapping": ("BlockDeviceMappings", [{"ebs": ("Ebs", {"volumeId": ("VolumeId", None)})}]),
    "networkInterfaceSet": ("NetworkInterfaces", [{"ipv6AddressesSet": ("Ipv6Addresses", [_IPV6])}]),
}


def instances_in(body: bytes) -> tuple[list[dict[str, Any]], str]:
    """Instances of one page, and the token of the next; "" = it was the last.

    :raises xml.etree.ElementTree.ParseError: it is no XML.
    :raises ValueError: it is another answer.
    """
    root = ElementTree.fromstring(body)
    # All names are in one namespace, the version of the API: "{http://ec2.amazonaws.com/doc/2016-11-15/}".
    space = root.tag[: root.tag.rfind("}") + 1]
    if root.tag != f"{space}DescribeInstancesResponse":
        raise ValueError(f"it is a {root.tag[len(space) :]}")
    found = root.iterfind(f"{space}reservationSet/{space}item/{space}instancesSet/{space}item")
    return [_read(item, _INSTANCE, len(space)) for item in found], root.findtext(f"{space}nextToken") or ""


def _read(element: ElementTree.Element, fields: _Fields, cut: int) -> dict[str, Any]:
    """:param cut: characters of the namespace."""
    data: dict[str, Any] = {}
    for child in element:
        field = fields.get(child.tag[cut:])
        if field is None:
            continue
        name, inner = field
        if inner is None:
            data[name] = child.text or ""
        elif isinstance(inner, list):
            data[name] = [_read(item, inner[0], cut) for item in child]
        else:
            data[name] = _read(child, inner, cut)
    return data
