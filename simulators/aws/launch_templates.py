# SPDX-License-Identifier: Apache-2.0
"""Launch templates of the simulated region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from simulators.aws.core import ACCOUNT, RegionCore
from simulators.aws.filters import Table, matching, one_page, tag_list, tags_for
from simulators.base.messages import ApiError, Json

if TYPE_CHECKING:
    from simulators.aws.cloud import Region


@dataclass
class SimulatedTemplate:
    """One template, with its only version. ``data``: as RunInstances takes them."""

    id: str
    name: str
    created: float
    data: Json
    tags: dict[str, str] = field(default_factory=dict)


class SimulatedTemplates:
    """Templates by id. The caller holds the core's lock."""

    def __init__(self, core: RegionCore) -> None:
        self.core = core
        self.templates: dict[str, SimulatedTemplate] = {}

    def named(self, name: str) -> SimulatedTemplate | None:
        """The template of a name."""
        return next((template for template in self.templates.values() if template.name == name), None)

    def find(self, template_id: str | None, name: str | None) -> SimulatedTemplate:
        """By id or name.

        :raises ApiError: 400.
        """
        found = self.templates.get(template_id) if template_id else self.named(name or "")
        if found is None:
            kind = "Id" if template_id else "Name"
            text = f"The specified launch template, with template {kind.lower()} {template_id or name}, does not exist."
            raise ApiError(400, text, f"InvalidLaunchTemplate{kind}.NotFound{'' if template_id else 'Exception'}")
        return found


FILTERS: Final[Table[SimulatedTemplate]] = {
    "launch-template-name": lambda template: [template.name],
    "create-time": lambda template: [template.created],
}


class TemplateOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.operations: dict[str, Callable[[Json], Json]] = {
            "CreateLaunchTemplate": self._create,
            "DescribeLaunchTemplates": self._describe,
            "DeleteLaunchTemplate": self._delete,
        }

    def _create(self, arguments: Json) -> Json:
        core, templates = self.cloud.core, self.cloud.templates
        name = arguments["LaunchTemplateName"]
        if templates.named(name) is not None:
            code = "InvalidLaunchTemplateName.AlreadyExistsException"
            raise ApiError(400, "Launch template name already in use.", code)
        tags = tags_for("launch-template", arguments.get("TagSpecifications", ()))
        template = SimulatedTemplate(core.new_id("lt"), name, core.now(), arguments["LaunchTemplateData"], tags)
        templates.templates[template.id] = template
        core.events["templates created"] += 1
        return {"LaunchTemplate": _shown(template)}

    def _describe(self, arguments: Json) -> Json:
        templates = self.cloud.templates
        asked = list(templates.templates.values())
        if "LaunchTemplateIds" in arguments:
            asked = [templates.find(template_id, None) for template_id in arguments["LaunchTemplateIds"]]
        elif "LaunchTemplateNames" in arguments:
            asked = [templates.find(None, name) for name in arguments["LaunchTemplateNames"]]
        found = matching(asked, arguments.get("Filters", ()), FILTERS, lambda template: template.tags)
        page, token = one_page(self.cloud.core, found, lambda template: template.id, arguments, least=1, most=200)
        return {"LaunchTemplates": [_shown(template) for template in page], "NextToken": token}

    def _delete(self, arguments: Json) -> Json:
        templates = self.cloud.templates
        template = templates.find(arguments.get("LaunchTemplateId"), arguments.get("LaunchTemplateName"))
        del templates.templates[template.id]
        self.cloud.core.events["templates deleted"] += 1
        return {"LaunchTemplate": _shown(template)}


def _shown(template: SimulatedTemplate) -> Json:
    return {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "CreateTime": template.created,
        "CreatedBy": f"arn:aws:iam::{ACCOUNT}:user/simulated",
        "DefaultVersionNumber": 1,
        "LatestVersionNumber": 1,
        "Tags": tag_list(template.tags),
    }
