# SPDX-License-Identifier: Apache-2.0
"""CreateTags, DeleteTags and DescribeTags, for things of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from simulators.aws.filters import Table, check_tags, matching, one_page
from simulators.base.messages import ApiError, Json

if TYPE_CHECKING:
    from simulators.aws.cloud import Region


class Tagged(Protocol):
    """Anything with tags."""

    tags: dict[str, str]


class TagOperations:
    """:ivar operations: handlers by name of operation.
    :ivar kinds: begin of ids -> kind of the thing, and how one is found; a part adds those that it has.
    """

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.kinds: dict[str, tuple[str, Callable[[str], Tagged]]] = {
            "vol": ("volume", cloud.volumes.get),
            "ami": ("image", cloud.images.get),
            "subnet": ("subnet", cloud.network.subnet),
            "snap": ("snapshot", cloud.snapshots.get),
            "h": ("dedicated-host", cloud.hosts.get),
            "lt": ("launch-template", lambda template_id: cloud.templates.find(template_id, None)),
            "import-snap": ("import-snapshot-task", cloud.imports.get),
            "import-ami": ("import-image-task", cloud.imports.get),
        }
        self.operations: dict[str, Callable[[Json], Json]] = {
            "CreateTags": self._create,
            "DeleteTags": self._delete,
            "DescribeTags": self._describe,
        }

    def _create(self, arguments: Json) -> Json:
        tags = {tag["Key"]: tag.get("Value", "") for tag in arguments["Tags"]}
        check_tags(tags)
        self._change(arguments["Resources"], lambda old: {**old, **tags})
        return {}

    def _delete(self, arguments: Json) -> Json:
        names = {tag["Key"] for tag in arguments.get("Tags", ())}
        self._change(
            arguments["Resources"], lambda old: {key: value for key, value in old.items() if names and key not in names}
        )
        return {}

    def _change(self, ids: list[str], change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        """All or none."""
        changes = []
        for given in ids:
            if given.startswith("i-"):
                (instance,) = self.cloud.instances.get([given])
                changes.append((given, change(instance.tags.value)))
            else:
                changes.append((given, change(self._find(given).tags)))
        for _given, tags in changes:
            # Those that AWS sets do not count.
            check_tags({key: value for key, value in tags.items() if not key.startswith("aws:")})
        for given, tags in changes:
            if given.startswith("i-"):
                self._set_of_instance(given, tags)
            else:
                self._find(given).tags = tags

    def _set_of_instance(self, instance_id: str, tags: dict[str, str]) -> None:
        core = self.cloud.core
        instance = self.cloud.instances.instances[instance_id]
        late = core.happens(core.knobs.tag_lag_rate, "tag lag")
        instance.tags.set(tags, core.draw(core.knobs.tag_lag_seconds, "tag lag seconds") if late else 0.0)
        self.cloud.instances.changed(instance)

    def _find(self, given: str) -> Tagged:
        kind = given.rpartition("-")[0]
        if kind not in self.kinds:
            raise ApiError(400, f"The ID '{given}' is not valid", "InvalidID")
        return self.kinds[kind][1](given)

    def _describe(self, arguments: Json) -> Json:
        cloud = self.cloud
        things: list[tuple[str, str, Mapping[str, str]]] = [
            (instance.id, "instance", instance.tags.shown) for instance in cloud.instances.visible()
        ]
        things += [(volume.id, "volume", volume.tags) for volume in cloud.volumes.volumes.values()]
        things += [(image.id, "image", image.tags) for image in cloud.images.images.values()]
        tags = [
            {"ResourceId": given, "ResourceType": kind, "Key": key, "Value": value}
            for given, kind, own in things
            for key, value in own.items()
        ]
        table: Table[Json] = {
            "resource-id": lambda tag: [tag["ResourceId"]],
            "resource-type": lambda tag: [tag["ResourceType"]],
            "key": lambda tag: [tag["Key"]],
            "value": lambda tag: [tag["Value"]],
        }
        found = matching(tags, arguments.get("Filters", ()), table, lambda tag: {tag["Key"]: tag["Value"]})
        page, token = one_page(cloud.core, found, lambda tag: f"{tag['ResourceId']} {tag['Key']}", arguments)
        return {"Tags": list(page), "NextToken": token}
