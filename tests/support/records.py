# SPDX-License-Identifier: Apache-2.0
"""What tests ask of records that are stored."""

from __future__ import annotations

from nodepool.model.record import Record
from nodepool.model.request import NodeRequest
from nodepool.zk import paths


def id_of(record: Record) -> str:
    """The id of a record that has one."""
    assert record.id is not None
    return record.id


def lock_dir(request: NodeRequest) -> str:
    """Path of the directory with the contenders for a request's lock."""
    return paths.request_lock(id_of(request))
