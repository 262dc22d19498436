# SPDX-License-Identifier: Apache-2.0
"""What is asked of ZooKeeper, as the packets that Kazoo sends.

Two operations of ZooKeeper 3.6 are not in Kazoo: `AddWatch` and `MultiRead` (zookeeper.jute,
org.apache.zookeeper.MultiOperationRecord and MultiResponse).
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    GetChildren,
    GetData,
    SetData,
    Sync,
    Transaction,
    int_struct,
    multiheader_struct,
    read_string,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

#: Types of the requests that a server cannot answer without the leader.
PASSED_ON: Final = frozenset(request.type for request in (Create, Delete, SetData, Sync, Transaction))

_ERROR: Final = -1
_END: Final = multiheader_struct.pack(-1, True, -1)
#: What stands in front of an operation, by its type.
_HEADS: Final = {
    operation.type: multiheader_struct.pack(operation.type, False, -1)
    for operation in (CheckVersion, Create, Delete, GetChildren, GetData, SetData)
}
#: The head of a result, and the number behind it: length of the data, count of the names, or error.
_RESULT: Final = struct.Struct("!iBii")
_READ_HEAD: Final = _HEADS[GetData.type]
_NO_WATCH: Final = b"\0"


def _joined(operations: list[Any]) -> bytes:
    """Operations as a MultiRequest has them."""
    parts: list[bytes] = []
    for operation in operations:
        if operation.type == GetData.type:
            # Thousands of them go out at once.
            path = operation.path.encode()
            parts += (_READ_HEAD, int_struct.pack(len(path)), path, _NO_WATCH)
        else:
            parts += (_HEADS[operation.type], operation.serialize())
    parts.append(_END)
    return b"".join(parts)


class AddWatch(NamedTuple):
    """AddWatchRequest: ustring path, int mode; answered by an empty body."""

    path: str
    mode: int = 1  # AddWatchMode.PERSISTENT_RECURSIVE

    @property
    def type(self) -> int:
        return 106

    def serialize(self) -> bytes:
        return bytes(write_string(self.path)) + bytes(int_struct.pack(self.mode))

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> bool:
        return True


class MultiRead(NamedTuple):
    """MultiRequest of `GetData` and `GetChildren` without watches; answered by a list.

    An element is (data, stat), a list of names, or the `KazooException` of that read.
    """

    operations: list[Any]

    @property
    def type(self) -> int:
        return 22

    def serialize(self) -> bytes:
        return _joined(self.operations)

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        last = len(buffer) - _RESULT.size
        while offset <= last:
            # What follows the head of a result is a number in each of them. Only the end of all has none.
            kind, _, _, number = _RESULT.unpack_from(buffer, offset)
            offset += _RESULT.size
            if kind == GetData.type:
                begin, offset = offset, offset + max(number, 0)
                stat = tuple.__new__(ZnodeStat, stat_struct.unpack_from(buffer, offset))
                results.append((None if number < 0 else buffer[begin:offset], stat))
                offset += stat_struct.size
            elif kind == GetChildren.type:
                names = []
                for _ in range(number):
                    name, offset = read_string(buffer, offset)
                    names.append(name)
                results.append(names)
            elif kind == _ERROR:
                results.append(EXCEPTIONS[number]())
            else:
                raise ValueError(f"unexpected result of type {kind} in the answer to multiRead")
        if not buffer.startswith(_END, offset):
            raise ValueError("the answer to multiRead has no end")
        return results


class MultiWrite(Transaction):  # type: ignore[misc]
    """Kazoo's transaction, put together in half the time."""

    __slots__ = ()

    def serialize(self) -> bytes:
        return _joined(self.operations)


class Operations:
    """Makes operations. What they are made of is of no concern to the caller: it passes them on.

    :param chroot: put in front of each path; "" = none.
    """

    def __init__(self, chroot: str) -> None:
        self._chroot = chroot

    def create(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        """:param flags: 1 = ephemeral, 2 = with a sequence number."""
        return Create(self._chroot + path, data, OPEN_ACL_UNSAFE, flags)

    def delete(self, path: str, version: int = -1) -> Any:
        """:param version: of the data; -1 = any."""
        return Delete(self._chroot + path, version)

    def check(self, path: str, version: int = -1) -> Any:
        """Only in a `transaction`: fails unless the znode exists with this version of the data (-1 = any)."""
        return CheckVersion(self._chroot + path, version)

    def set(self, path: str, data: bytes, version: int) -> Any:
        return SetData(self._chroot + path, data, version)

    def get(self, path: str) -> Any:
        """Answered by (data, stat)."""
        return GetData(self._chroot + path, None)

    def children(self, path: str) -> Any:
        """Answered by a list of names."""
        return GetChildren(self._chroot + path, None)

    def sync(self, path: str) -> Any:
        """The server catches up with the leader."""
        return Sync(self._chroot + path)

    def watch(self, path: str) -> Any:
        """Events of this znode and of all below, until the connection is lost."""
        return AddWatch(self._chroot + path)

    def transaction(self, operations: list[Any]) -> Any:
        """All or none of some writes and checks; answered by a list of results."""
        return MultiWrite(operations)

    def reads(self, operations: list[Any]) -> Any:
        """Some of `get` and `children` in one packet, each for itself; see `MultiRead`."""
        return MultiRead(operations)
