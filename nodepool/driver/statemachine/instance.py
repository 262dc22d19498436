# SPDX-License-Identifier: Apache-2.0
"""`Instance` and `Resource`: what an adapter reports of things in its cloud (reference/driver 7, 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodepool.model.quota import QuotaInformation


class Instance:
    """One machine in the cloud.

    Subclasses set as many of the attributes as they can. These are not set here; when a subclass sets one, it wins over
    what the image says: ``username``, ``python_path``, ``shell_type``, ``connection_port``, ``connection_type``,
    ``host_keys``. Likewise ``node_attributes``: defaults under the ``node-attributes`` of the pool.

    :param data: given to `load`; without arguments it is not called.
    """

    #: False: Zuul does not connect to the instance itself, and needs no ``interface_ip``.
    has_address = True
    #: Of one that is listed, but ends, or was stopped by the cloud, so that it can be used no more: the cloud's code,
    #: and a text (D-9).
    ends: tuple[str, str] | None = None

    def __init__(self, *data: Any, **named: Any) -> None:
        self.ready = False
        self.deleted = False
        #: A text, or a dict.
        self.external_id: Any = None
        #: Where Zuul connects to.
        self.interface_ip: str | None = None
        #: As given to `Adapter.getCreateStateMachine`.
        self.metadata: dict[str, Any] = {}
        self.public_ipv4: str | None = None
        self.public_ipv6: str | None = None
        self.private_ipv4: str | None = None
        self.private_ipv6: str | None = None
        self.cloud: str | None = None
        self.az: str | None = None
        self.region: str | None = None
        self.host_id: str | None = None
        #: Whatever the driver wants to find again in the node, as JSON.
        self.driver_data: Any = None
        self.slot: int | None = None
        self.node_properties: dict[str, Any] = {}
        if data or named:
            self.load(*data, **named)

    def __repr__(self) -> str:
        state = " ".join(word for word in ("ready", "deleted") if getattr(self, word, False))
        return f"<{type(self).__name__} {self.external_id} {state}>"

    def load(self, *data: Any, **named: Any) -> None:
        """Parse what the cloud says; may be overridden."""
        return

    def getQuotaInformation(self) -> QuotaInformation:
        """What this instance uses of the quota."""
        raise NotImplementedError


class Resource:
    """Something in the cloud that could be left over.

    Subclasses add what their adapter needs to delete it.

    :param metadata: as given at its creation. Says whose it is: ``nodepool_provider_name`` together with
        ``nodepool_node_id``, or with ``nodepool_build_id`` and ``nodepool_upload_id``.
    :param type: letters and digits, e.g. ``instance``; names the kind in logs and metrics.
    :param plural_metric_name: in metrics; ``type`` + ``s`` if not given.
    """

    def __init__(self, metadata: dict[str, Any] | None, type: str, plural_metric_name: str | None = None) -> None:
        self.type = type
        self.plural_metric_name = plural_metric_name or f"{type}s"
        self.metadata: dict[str, Any] = metadata or {}
        #: Of an image: False = its upload never ended. Without a record nobody can use it any more (D-3).
        self.usable = True

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} {self.type} {self.metadata}>"
