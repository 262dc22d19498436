# SPDX-License-Identifier: Apache-2.0
"""A project with room for two servers: requests wait for room, whoever has it, and none fails (Q, L-7, O-3)."""

from __future__ import annotations

import pytest

from tests.functional.openstack.place import Place
from tests.functional.openstack.provider import OpenStackProvider

#: Servers that the project of the cloud may have.
ROOM = 2

pytestmark = pytest.mark.parametrize("cloud", ["rig-small"], indirect=True)


@pytest.mark.parametrize("told", [True, False])
def test_more_requests_than_room(place: Place, provider: OpenStackProvider, told: bool) -> None:
    """All are served in turn.

    :param told: does the launcher heed what Nova says of the limits? If not, it runs into them, again and again.
    """
    provider.pool["ignore-provider-quota"] = not told
    launcher = place.launch(provider)
    # Nova itself lets too many in when they come at once, and lets them fail afterwards.
    place.serve(provider, 6, lambda: not told or len(place.cloud.servers()) <= ROOM)
    place.wait_empty()
    assert ("Quota exceeded" in launcher.log_text()) is not told


def test_room_is_shared(place: Place, provider: OpenStackProvider) -> None:
    """Q-4: a server that is not ours takes its part; the other part serves all in turn."""
    other = place.cloud.create_server("other")
    launcher = place.launch(provider)
    place.serve(provider, 3, lambda: len(place.cloud.servers()) <= ROOM)
    assert "Quota exceeded" not in launcher.log_text()
    place.cloud.delete_server(other)
    place.wait_empty()
