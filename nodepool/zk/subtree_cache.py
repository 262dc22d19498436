# SPDX-License-Identifier: Apache-2.0
"""`SubtreeCache`: knows the znodes below a root, of which a subclass says what they mean.

An event says that a znode is there, is gone or has other data; only data are read then. An answer that was under way
when an event of the same znode or of a child came may be older than the event: it is asked for again. After a lost
connection all is read anew.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from kazoo.exceptions import KazooException, NoNodeError

from nodepool.exceptions import ZKConnectionError
from nodepool.zk import events
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.multi_read import read_for_callback
from nodepool.zk.watched_subtree import P, WatchedSubtree

_DATA: Final = "data"
_CHILDREN: Final = "children"
#: What was asked: of which path, and which of the two.
_Question = tuple[str, str]


class SubtreeCache(WatchedSubtree[P]):
    """Asks for what is to be known of a subtree. A subclass stores what is found, and notifies listeners."""

    def __init__(self, client: ZooKeeperClient, root: str, trouble: str) -> None:
        super().__init__(client, root, trouble)
        #: Is a further answer needed, because an event came meanwhile?
        self._asked: dict[_Question, bool] = {}
        #: Questions under way, by part.
        self._open: dict[str, int] = {}

    @property
    def pending_reads(self) -> int:
        """Reads under way."""
        return len(self._asked)

    # -- what a subclass knows --

    @abstractmethod
    def _has_data(self, path: str) -> bool:
        """Is there something to know of this znode besides that it exists?"""

    @abstractmethod
    def _has_children(self, path: str) -> bool:
        """May this znode have children that matter?"""

    @abstractmethod
    def _on_gone(self, path: str) -> None:
        """A znode is gone with all below; it may not have been known."""

    @abstractmethod
    def _on_children(self, path: str, names: list[str]) -> None:
        """A znode has these children and no others."""

    @abstractmethod
    def _on_data(self, path: str, data: bytes, stat: Any) -> None:
        """A znode has these data."""

    @abstractmethod
    def _on_complete(self) -> None:
        """Everything was read: sets ``ready``."""

    @abstractmethod
    def _on_settled(self) -> None:
        """While the cache is ready: an event or answers were taken. More may be under way, see `_is_open`."""

    def _on_there(self, path: str) -> None:
        """A znode was made, or has other data, which are being read."""
        return

    def _on_change(self, path: str) -> None:
        """While the cache is ready: there is, or was, something new about a znode."""
        return

    def _part_of(self, path: str) -> str:
        """What a znode belongs to; `_is_open` tells parts apart."""
        return ""

    # -- reading --

    def _is_open(self, part: str = "") -> bool:
        """Is something of this part being read?"""
        return bool(self._open.get(part))

    def _forget_questions(self) -> None:
        self._asked.clear()
        self._open.clear()

    def _read_all(self) -> None:
        self._ask([(self._root, _CHILDREN)])

    def _on_event(self, event: int, path: str) -> None:
        for question in ((path, _DATA), (path, _CHILDREN), (path.rpartition("/")[0], _CHILDREN)):
            if question in self._asked:
                self._asked[question] = True
        if event == events.DELETED:
            self._on_gone(path)
        else:
            self._on_there(path)
            if self._has_data(path):
                self._ask([(path, _DATA)])
        if self.ready.is_set():
            self._on_change(path)
            self._on_settled()

    def _ask(self, questions: Iterable[_Question]) -> None:
        new = [question for question in questions if question not in self._asked]
        for question in new:
            self._asked[question] = False
            part = self._part_of(question[0])
            self._open[part] = self._open.get(part, 0) + 1
        try:
            operations = self._client.kazoo.operations
            reads = [
                (question, operations.get(question[0]) if question[1] == _DATA else operations.children(question[0]))
                for question in new
            ]
            read_for_callback(self._client, iter(reads), partial(self._on_answers, self._generation))
        except ZKConnectionError as closing:
            self.log.debug("%s is not read any more: %s", self._root, closing)

    def _on_answers(self, generation: int, answers: list[tuple[_Question, Any]]) -> None:
        if generation != self._generation:
            # Of an earlier connection.
            return
        further: list[_Question] = []
        for question, answer in answers:
            again = self._asked.pop(question)
            self._open[self._part_of(question[0])] -= 1
            further += [question] if again else self._take(question, answer)
        if further:
            self._ask(further)
        if self.ready.is_set():
            self._on_settled()
        elif not self._asked:
            self._on_complete()

    def _take(self, question: _Question, answer: Any) -> list[_Question]:
        """Note an answer that no event has overtaken; returns what else must be known."""
        path, what = question
        if isinstance(answer, NoNodeError):
            self._on_gone(path)
            return []
        if isinstance(answer, KazooException):
            self.log.error("Cannot read %s: %r", path, answer)
            return []
        if what == _DATA:
            self._on_data(path, *answer)
            return []
        self._on_children(path, answer)
        below = [f"{path}/{name}" for name in answer]
        return [
            *((child, _DATA) for child in below if self._has_data(child)),
            *((child, _CHILDREN) for child in below if self._has_children(child)),
        ]
