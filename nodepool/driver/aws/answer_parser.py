# SPDX-License-Identifier: Apache-2.0
"""A parser of answers for botocore's clients: lists of instances are read by `instance_list`, all else as ever.

botocore takes each XML for an answer in which all is left out, also the page of a proxy: what is not there would be
believed to be gone.

Imports botocore: for `nodepool.driver.aws.transport`, when it makes its session.
"""

from __future__ import annotations

import re
from typing import Any, Final
from xml.etree import ElementTree

from botocore.parsers import EC2QueryParser, ResponseParserError, ResponseParserFactory

from nodepool.driver.aws.instance_list import instances_in

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
