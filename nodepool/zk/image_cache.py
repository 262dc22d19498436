# SPDX-License-Identifier: Apache-2.0
"""`ImageCache`: what ZooKeeper knows of images, kept up to date by one recursive watch.

Everything is changed in the connection thread, where events and answers arrive. Readers get views, which nobody
changes.

An event says that a znode is there, is gone or has other data; only data are read then. An answer that was under way
when an event of the same znode or of a child came may be older than the event: it is asked for again. The view of an
image is renewed when nothing of the image is being read, so that no view shows a lock that is free beside the record
that its holder has just overwritten. After a lost connection all is read anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kazoo.exceptions import KazooException, NoNodeError

from nodepool import log_names
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard
from nodepool.model.image_view import NO_IMAGES, ImagesView
from nodepool.zk import events, image_paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.image_tree import ImageTree
from nodepool.zk.multi_read import read_for_callback
from nodepool.zk.transactions import UNKNOWN_OUTCOME

#: Called with the name of an image that changed, "" = any may have; in the connection thread, must not block.
Listener = Callable[[str], None]

_DATA: Final = "data"
_CHILDREN: Final = "children"
#: What was asked: of which path, and which of the two.
_Question = tuple[str, str]


class ImageCache:
    """Follows all images. Made before or after the client is connected; does not block."""

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._tree = ImageTree()
        self._view = NO_IMAGES
        self._listeners: list[Listener] = []
        self._guard = Guard(self.log, "Error in a listener of images")
        #: Is a further answer needed, because an event came meanwhile?
        self._asked: dict[_Question, bool] = {}
        #: Questions under way about an image.
        self._open: dict[str, int] = {}
        self._changed: set[str] = set()
        self._generation = 0
        #: Set while the cache follows ZooKeeper; clear before everything was read and without a connection.
        self.ready = threading.Event()
        #: Was everything read once, so that there is a view, be it old?
        self.complete = False
        client.add_session_listener(self._on_session)
        if client.connected:
            self._resync()

    # -- readers (any thread) --

    def snapshot(self) -> ImagesView:
        """All images as they were last known; does not block. Empty before everything was read once."""
        return self._view

    @property
    def pending_reads(self) -> int:
        """Reads under way."""
        return len(self._asked)

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until everything was read, at most ``timeout`` seconds."""
        return self.ready.wait(timeout)

    def add_listener(self, listener: Listener) -> None:
        """Be told of changes; see `Listener`."""
        self._listeners = [*self._listeners, listener]

    def remove_listener(self, listener: Listener) -> None:
        """Tell a listener nothing more; one that is not there is fine."""
        self._listeners = [other for other in self._listeners if other != listener]

    # -- connection thread --

    def _on_session(self, state: str) -> None:
        if state == "connected":
            self._resync()
        else:
            self.ready.clear()
            self._generation += 1

    def _resync(self) -> None:
        self._generation += 1
        self.ready.clear()
        self._asked.clear()
        self._open.clear()
        self._changed.clear()
        self._client.kazoo.watch_recursive(image_paths.IMAGES, self._on_event, self._on_watching)
        self._ask([(image_paths.IMAGES, _CHILDREN)])

    def _on_watching(self, _: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, UNKNOWN_OUTCOME):
            self.log.error("ZooKeeper refuses to watch %s, is it 3.6 or newer? %r", image_paths.IMAGES, error)

    def _on_event(self, event: int, path: str) -> None:
        names = image_paths.parts(path)
        kind = image_paths.kind(names)
        for question in ((path, _DATA), (path, _CHILDREN), (path.rpartition("/")[0], _CHILDREN)):
            if question in self._asked:
                self._asked[question] = True
        if event == events.DELETED:
            self._tree.remove(path)
        else:
            self._tree.add(path)
            if kind.has_data:
                self._ask([(path, _DATA)])
        self._note_change(names)

    def _note_change(self, names: list[str]) -> None:
        """Something of an image has changed; its view is renewed unless something is still being read."""
        if self.ready.is_set():
            changed = names[:1] or self._tree.image_names() or list(self._view.images)
            self._changed.update(changed)
            self._publish_settled()

    def _ask(self, questions: list[_Question]) -> None:
        new = [question for question in questions if question not in self._asked]
        for question in new:
            self._asked[question] = False
            image = _image_of(question)
            self._open[image] = self._open.get(image, 0) + 1
        try:
            operations = self._client.kazoo.operations
            reads = [
                (question, operations.get(question[0]) if question[1] == _DATA else operations.children(question[0]))
                for question in new
            ]
            read_for_callback(self._client, iter(reads), partial(self._on_answers, self._generation))
        except ZKConnectionError as closing:
            self.log.debug("Images are not read any more: %s", closing)

    def _on_answers(self, generation: int, answers: list[tuple[_Question, Any]]) -> None:
        if generation != self._generation:
            # Of an earlier connection.
            return
        further: list[_Question] = []
        for question, answer in answers:
            again = self._asked.pop(question)
            self._open[_image_of(question)] -= 1
            further += [question] if again else self._take(question, answer)
        if further:
            self._ask(further)
        if not self.ready.is_set():
            if not self._asked:
                self._publish_all()
            return
        self._publish_settled()

    def _take(self, question: _Question, answer: Any) -> list[_Question]:
        """Note an answer that no event has overtaken; returns what else must be known."""
        path, what = question
        if isinstance(answer, NoNodeError):
            self._tree.remove(path)
            return []
        if isinstance(answer, KazooException):
            self.log.error("Cannot read %s: %r", path, answer)
            return []
        if what == _DATA:
            data, stat = answer
            self._tree.load(path, data, stat)
            return []
        self._tree.set_children(path, answer)
        names = image_paths.parts(path)
        further = []
        for name in answer:
            kind = image_paths.kind([*names, name])
            further += [(f"{path}/{name}", _DATA)] if kind.has_data else []
            further += [(f"{path}/{name}", _CHILDREN)] if kind.has_children else []
        return further

    def _publish_settled(self) -> None:
        """Renew the views of changed images of which nothing is being read."""
        for image in [image for image in self._changed if not self._open.get(image)]:
            self._changed.discard(image)
            self._view = self._view.with_image(image, self._tree.view(image))
            self._notify(image)

    def _publish_all(self) -> None:
        self._open.clear()
        views = {name: view for name in self._tree.image_names() if (view := self._tree.view(name)) is not None}
        self._view = ImagesView(views)
        self.complete = True
        self.ready.set()
        self._notify("")

    def _notify(self, image: str) -> None:
        for listener in self._listeners:
            with self._guard:
                listener(image)


def _image_of(question: _Question) -> str:
    return "".join(image_paths.parts(question[0])[:1])
