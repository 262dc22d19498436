# SPDX-License-Identifier: Apache-2.0
"""`CreationHooks`: what a driver says of the launches of its instances; `CreationMachine` has the steps."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.statemachine import metadata as tags
from nodepool.driver.statemachine.adapter import Log
from nodepool.driver.statemachine.deletion_machine import DeletionMachine
from nodepool.driver.statemachine.instance import Instance
from nodepool.driver.statemachine.instance_cloud import InstanceCloud
from nodepool.driver.statemachine.inventory import R
from nodepool.driver.statemachine.inventory_machine import InventoryMachine
from nodepool.driver.statemachine.lost_creations import CreationKey
from nodepool.exceptions import CloudUnavailableException, LaunchError, LaunchStatusException

#: A machine that was not advanced for so long was given up: nothing may be made for it any more.
GIVEN_UP_SECONDS: Final = 30.0


class CreationHooks(InventoryMachine[R]):
    """Methods that a driver overrides, and what they may look at.

    :param label_name: of the node.
    :param metadata: as given to `Adapter.getCreateStateMachine`.
    """

    #: Does the cloud answer a creation that it has seen before, by its key, with the same instance? Else a lost one is
    #: not repeated, but its instance is looked for by its metadata.
    idempotent: ClassVar[bool] = False

    def __init__(
        self,
        cloud: InstanceCloud[R],
        label_name: str,
        metadata: Mapping[str, str],
        log: Log,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(cloud, log, clock)
        self.metadata = dict(metadata)
        self.node_id = str(metadata.get(tags.NODE_KEY, ""))
        self._label_name = label_name
        #: Whose launch it is, for texts.
        self.where = f"provider {cloud.provider}, label {label_name}"
        #: How often the attempt was begun anew.
        self.begun_anew = 0

    def create(self, key: CreationKey) -> str:
        """Send the creation; returns the id of the instance. Blocks; in a thread of the cloud.

        Calls `permit` right before the call. What is made must carry ``metadata``, and where the cloud has such a thing
        ``key.text``. Raises CloudUnavailableException for a call that got no answer; its ``maybe_done`` is False if
        the cloud surely did not get it. A driver has this, or `begin_creation` instead.
        """
        raise NotImplementedError

    def begin_creation(self, key: CreationKey) -> Future[str]:
        """The same; does not block. A cloud that makes several instances with one call may gather creations.

        The future may end in any thread. What `create` is to raise is its exception.
        """
        return self.submit(lambda: self.create(key), self.cloud.creators)

    @abc.abstractmethod
    def seen(self, record: R) -> Instance | bool:
        """A step: the instance is in a list. Does not block.

        :return: the instance when it can be used; False = wait; True = there is a new state.
        :raises LaunchStatusException: it will never work.
        """

    def id_in_advance(self) -> str | None:
        """The id that the instance will have, where it is a name of our choice. It is stored before `create` is called.

        Such a creation is sent again after an answer that was lost, and not looked for: set ``idempotent``.
        """
        return None

    def refused(self, error: Exception) -> Exception:
        """What an error of `create` means, if it was not the lack of an answer."""
        return error

    def begin_anew(self, error: LaunchError) -> float | None:
        """A creation came to nothing: the cloud refused it, or accepted it and gave it up later.

        Says after how many seconds to begin anew, with another key, e.g. in a place that has capacity; None = the
        attempt fails with the error. No attempt is spent on it; what the creation left is deleted before. Does not
        block; only called when it is sure that an earlier call made nothing.
        """
        return None

    def discard(self, record_id: str) -> DeletionMachine[R]:
        """Deletes what a creation left that is begun anew."""
        return DeletionMachine(self.cloud, record_id, self.log, self.clock)

    def leftovers(self) -> DeletionMachine[R] | None:
        """Deletes all that a creation left that is begun anew; None = it made nothing. Does not block."""
        return None if self.record_id is None else self.discard(self.record_id)

    def unlisted(self) -> None:
        """A step: the creation was accepted, and its instance is in no list, or not any more. Does not block.

        :raises LaunchError: the cloud has said elsewhere that there will be none.
        """

    def put_off(self, error: Exception) -> float | None:
        """Was the creation refused only for now? Then the seconds until it is sent again; None = it has failed.

        Nothing was made by the call that was refused. What earlier calls of the same creation made stays.
        """
        return None

    def hurries(self) -> bool:
        """Is a creation that was put off to be sent now, because what it waited for has come? See `wake`."""
        return False

    def found(self) -> None:
        """An instance was adopted whose creation gave no answer."""

    def gone(self) -> Exception:
        """What it means that the cloud says that the instance does not exist any more."""
        return LaunchStatusException(f"{self.where}: instance {self.record_id} was deleted by somebody else")

    def stored_id(self, record_id: str) -> Any:
        """What the record of the node says of its instance: ``external_id``, the id itself unless there is more."""
        return record_id

    def permit(self) -> None:
        """Is the instance still wanted? For `create`: the call may have waited for minutes for its turn. Any thread.

        :raises Exception: no; nothing may be made.
        """
        if self.clock() - self.advanced_at > GIVEN_UP_SECONDS:
            error = CloudUnavailableException(f"{self.where}: the launch was given up before its turn came")
            error.maybe_done = False
            raise error
        if not self.wanted():
            raise LaunchStatusException(f"{self.where}: the launch is not wanted any more, or ZooKeeper is lost")

    def key(self) -> CreationKey:
        """The key of the creation that begins now, or has begun."""
        return CreationKey(self.cloud.provider, self.node_id, self.attempt, self.begun_anew)
