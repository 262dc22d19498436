# SPDX-License-Identifier: Apache-2.0
"""`FleetCreation`: the launch of an instance of which AWS chooses the type (AW-8)."""

from __future__ import annotations

from typing import Final

from nodepool.driver.aws.creation import AwsCreation
from nodepool.driver.aws.fleet_spec import fleet_arguments
from nodepool.driver.aws.launch_batch import token_of
from nodepool.driver.framework.cloud_errors import CloudNoCapacity, CloudRefused
from nodepool.driver.statemachine import CreationKey

_NO_TEMPLATE: Final = "InvalidLaunchTemplateName.NotFoundException"


class FleetCreation(AwsCreation):
    """With CreateFleet."""

    def create(self, key: CreationKey) -> str:
        while True:
            try:
                return self._create_at_place(key)
            except CloudNoCapacity as error:
                if not self.another_place(error):
                    raise

    def _create_at_place(self, key: CreationKey) -> str:
        place, label = self.places()[0], self._label
        template = self.cloud.templates.name_for(label)
        token = token_of([key], place)
        arguments = fleet_arguments(label, self.image().id, template, self._tags, token, spot=place.spot)
        try:
            return self.cloud.fleets.create_fleet(arguments, self.permit)
        except CloudRefused as error:
            if error.code == _NO_TEMPLATE:
                # Somebody removed it: the next attempt makes it.
                self.cloud.templates.forget()
            raise
