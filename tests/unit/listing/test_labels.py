# SPDX-License-Identifier: Apache-2.0
"""Who serves a label, and who wants it."""

from __future__ import annotations

from nodepool.listing.pools import label_overview
from nodepool.model import states
from nodepool.model.status import LabelStatus
from tests.support.observed import NOW, component, known, node, request, seen, status


def test_labels() -> None:
    """Those that nobody serves are there, too, if somebody wants them."""
    trouble = {"arm": LabelStatus("label.image", "no image", NOW)}
    table = label_overview(
        seen(
            *(
                request(1, "gpu"),
                request(2, "gpu", "gpu"),
                request(3, "nobody"),
                request(4, "arm", state=states.FULFILLED),
            ),
            nodes=known(node(1, "gpu"), node(2, "gpu", state=states.IN_USE)),
            registered=[component("one", "gpu", "arm"), component("two", "gpu")],
            statuses=[status("one", labels=trouble)],
        )
    )
    assert table.rows == [
        ["arm", "not served", ["one/main"], 0, 0, 0, None, "one/main: no image"],
        ["gpu", "served", ["one/main", "two/main"], 2, 1, 2, NOW - 412, None],
        ["nobody", "not served", [], 0, 0, 1, NOW - 412, None],
    ]
