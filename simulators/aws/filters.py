# SPDX-License-Identifier: Apache-2.0
"""Filters of Describe operations: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Filter.html"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from simulators.aws.core import RegionCore
from simulators.base.messages import ApiError, Json
from simulators.base.pages import page

V = TypeVar("V")
#: Name of a filter -> the values that a thing has for it.
Table = Mapping[str, Callable[[V], Iterable[Any]]]

MOST_VALUES: Final = 200


def matching(
    entries: Iterable[V], filters: Sequence[Json], table: Table[V], tags: Callable[[V], Mapping[str, str]]
) -> list[V]:
    """Those for which all filters hold.

    :raises ApiError: 400, an unknown filter, or too many values.
    """
    if sum(len(given.get("Values", ())) for given in filters) > MOST_VALUES:
        raise ApiError(
            400, "The maximum number of filter values specified on a single call is 200", "FilterLimitExceeded"
        )
    found = list(entries)
    for given in filters:
        values = _values(str(given.get("Name", "")), table, tags)
        wanted = [str(value) for value in given.get("Values", ())]
        found = [entry for entry in found if _holds(values(entry), wanted)]
    return found


def _values(name: str, table: Table[V], tags: Callable[[V], Mapping[str, str]]) -> Callable[[V], Iterable[Any]]:
    if name.startswith("tag:"):
        key = name.removeprefix("tag:")
        return lambda entry: [tags(entry)[key]] if key in tags(entry) else []
    if name == "tag-key":
        return lambda entry: list(tags(entry))
    if name not in table:
        raise ApiError(400, f"The filter '{name}' is invalid", "InvalidParameterValue")
    return table[name]


def _holds(values: Iterable[Any], wanted: Sequence[str]) -> bool:
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values if value is not None]
    # Brackets have no meaning for AWS.
    patterns = [pattern.replace("[", "[[]") for pattern in wanted]
    return any(fnmatchcase(text, pattern) for text in texts for pattern in patterns)


def one_page(
    core: RegionCore, entries: Sequence[V], key: Callable[[V], str], arguments: Json, least: int = 5, most: int = 1000
) -> tuple[Sequence[V], str | None]:
    """The page that the arguments ask for, and the token of the next one.

    :param least: and ``most``: what MaxResults may be.
    :raises ApiError: 400.
    """
    limit = arguments.get("MaxResults")
    if limit is not None and not least <= limit <= most:
        text = f"Value ( {limit} ) for parameter maxResults is invalid. Expecting a value from {least} to {most}."
        raise ApiError(400, text, "InvalidParameterValue")
    # Without a limit AWS gives all, or as much as it likes; with one never more than its own.
    length = core.knobs.page_limit if limit is None else min(limit, core.knobs.page_limit)
    try:
        # Only pages whose length a client names may be empty.
        given, empty = arguments.get("NextToken") or None, False
        if limit is not None and given is None:
            empty = core.knobs.empty_pages or core.turn("page", False, False, False, True)
        found, token = page(entries, key, given, length, empty_first=empty)
    except ValueError:
        raise ApiError(400, "The token is invalid", "InvalidNextToken") from None
    return found, core.turn("end", None, "") if token is None else token


def tag_list(tags: Mapping[str, str]) -> list[Json]:
    """Tags as answers have them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_for(kind: str, specifications: Sequence[Json]) -> dict[str, str]:
    """The tags of things of a kind, out of a call's TagSpecifications.

    :param kind: such as ``instance``.
    :raises ApiError: 400, AWS does not take them.
    """
    tags: dict[str, str] = {}
    for specification in specifications:
        if specification.get("ResourceType") == kind:
            tags |= {tag["Key"]: tag.get("Value", "") for tag in specification.get("Tags", ())}
    check_tags(tags)
    return tags


def check_tags(tags: Mapping[str, str]) -> None:
    """Refuses tags that AWS would not take."""
    if len(tags) > 50:
        raise ApiError(400, "More than 50 tags specified", "TagLimitExceeded")
    for key, value in tags.items():
        if not 1 <= len(key) <= 128 or len(value) > 256 or key.startswith("aws:"):
            raise ApiError(400, f"Tag ('{key}', '{value}') is not valid", "InvalidParameterValue")
