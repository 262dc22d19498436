# SPDX-License-Identifier: Apache-2.0
"""A parser of answers for botocore's clients: lists of instances are read by `instances_in`, all else by botocore.

botocore takes each XML for an answer in which all is left out, also the page of a proxy: what is not there would be
taken for deleted. Imports botocore, when `nodepool.driver.aws.transport` makes its session. First the parser, then how
it reads instances.
"""

from __future__ import annotations

import re
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

_Element = ElementTree.Element


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
    return [_instance(item, len(space)) for item in found], root.findtext(f"{space}nextToken") or ""


def _instance(item: _Element, cut: int) -> dict[str, Any]:
    """:param cut: characters of the namespace."""
    data: dict[str, Any] = {}
    for child in item:
        name = child.tag[cut:]
        plain = _PLAIN.get(name)
        if plain is not None:
            if child.text:
                data[plain] = child.text
        elif name in _READERS:
            key, read = _READERS[name]
            data[key] = read(child, cut)
    return data


def _texts(element: _Element, cut: int) -> dict[str, str]:
    return {child.tag[cut:]: child.text or "" for child in element}


def _state(element: _Element, cut: int) -> dict[str, str]:
    return {"Name": _texts(element, cut).get("name", "")}


def _reason(element: _Element, cut: int) -> dict[str, str]:
    told = _texts(element, cut)
    return {"Code": told.get("code", ""), "Message": told.get("message", "")}


def _placement(element: _Element, cut: int) -> dict[str, str]:
    told = _texts(element, cut)
    return {"AvailabilityZone": told.get("availabilityZone", ""), "HostId": told.get("hostId", "")}


def _tags(element: _Element, cut: int) -> list[dict[str, str]]:
    told = (_texts(item, cut) for item in element)
    return [{"Key": tag.get("key", ""), "Value": tag.get("value", "")} for tag in told]


def _devices(element: _Element, cut: int) -> list[dict[str, Any]]:
    found = []
    for item in element:
        for child in item:
            if child.tag[cut:] == "ebs":
                found.append({"Ebs": {"VolumeId": _texts(child, cut).get("volumeId", "")}})
    return found


def _interfaces(element: _Element, cut: int) -> list[dict[str, Any]]:
    found = []
    for item in element:
        addresses = [
            {"Ipv6Address": _texts(address, cut).get("ipv6Address", "")}
            for child in item
            if child.tag[cut:] == "ipv6AddressesSet"
            for address in child
        ]
        found.append({"Ipv6Addresses": addresses})
    return found


def _number(element: _Element, cut: int) -> int:
    return int(element.text or 0)


_PLAIN = {
    "instanceId": "InstanceId",
    "instanceType": "InstanceType",
    "instanceLifecycle": "InstanceLifecycle",
    "ipAddress": "PublicIpAddress",
    "privateIpAddress": "PrivateIpAddress",
}
_READERS = {
    "amiLaunchIndex": ("AmiLaunchIndex", _number),
    "instanceState": ("State", _state),
    "stateReason": ("StateReason", _reason),
    "placement": ("Placement", _placement),
    "tagSet": ("Tags", _tags),
    "blockDeviceMapping": ("BlockDeviceMappings", _devices),
    "networkInterfaceSet": ("NetworkInterfaces", _interfaces),
}
