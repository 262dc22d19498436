# SPDX-License-Identifier: Apache-2.0
"""The simulated Nova: what happens to servers from create to the end of their deletion."""

from __future__ import annotations

from collections.abc import Callable

from simulators.base.observer import Observer
from simulators.openstack import knobs as kinds
from simulators.openstack.collection import Collection
from simulators.openstack.core import Core
from simulators.openstack.create_spec import CreateSpec
from simulators.openstack.knobs import BootRule
from simulators.openstack.messages import ApiError, new_id
from simulators.openstack.network import UP, Network
from simulators.openstack.servers import ACTIVE, BUILD, DELETED, ERROR, Server, ServerTable
from simulators.openstack.volumes import Volumes

#: A server of this flavor never finds a host.
IMPOSSIBLE_FLAVOR = "impossible"
NO_VALID_HOST = "No valid host was found. There are not enough hosts available."


class Compute:
    """All of Nova's state. The caller holds the core's lock."""

    def __init__(self, core: Core, network: Network, volumes: Volumes) -> None:
        self.core = core
        self.network = network
        self.volumes = volumes
        self.servers = ServerTable()
        self.flavors = Collection("Flavor", "flavors")
        self.keypairs = Collection("Keypair", "keypairs")
        self.observer = Observer()
        self.used_cores = 0
        self.used_ram = 0
        self._created = 0

    def create(self, spec: CreateSpec) -> Server:
        """Accepts a server and decides what will become of it.

        :raises ApiError: 403, a quota.
        """
        self._check_quota(spec)
        stamp = self.core.stamp()
        self._created += 1
        server = Server(
            id=new_id(),
            name=spec.name,
            number=self._created,
            owner=(self.core.project_id, self.core.user_id),
            flavor=spec.flavor,
            image_id=None if spec.volume_size else spec.image_id,
            metadata=spec.metadata,
            key_name=spec.key_name,
            zone=spec.zone,
            config_drive=spec.config_drive,
            security_groups=spec.security_groups,
            created=stamp,
            updated=stamp,
            user_data=spec.user_data,
        )
        self.used_cores += spec.flavor["vcpus"]
        self.used_ram += spec.flavor["ram"]
        self.servers.add(server)
        self.core.events["servers created"] += 1
        self.observer.present(server.id, server.metadata, server.flavor["vcpus"], server.flavor["ram"])
        if self.core.happens(self.core.knobs.hidden_rate, "hidden"):
            server.listed = False
            self.core.after(self.core.knobs.hidden_seconds, "hidden seconds", lambda: self._show(server))
        self._begin_boot(server, spec)
        return server

    def delete(self, key: str) -> None:
        """Accepts a deletion and decides whether it happens.

        :raises ApiError: 404.
        """
        server = self.servers.get(key)
        rule = next((rule for rule in self.core.knobs.deletes if self.core.applies(rule, "delete faults")), None)
        if rule is not None:
            self.core.events[f"deletes {rule.kind}"] += 1
            if rule.kind == kinds.SWALLOWED:
                return
        if server.task_state == "deleting":
            return
        server.task_state = "deleting"
        self.servers.changed(server, self.core.stamp())
        if rule is None:
            self.core.after(self.core.knobs.delete_seconds, "delete", lambda: self.remove(server))
        elif rule.kind == kinds.DELETE_ERROR:
            self.core.after(self.core.knobs.delete_seconds, "delete", lambda: self.fail(server, "Deletion failed."))

    def remove(self, server: Server) -> None:
        """The server is gone, with its ports and volumes, except those that leak."""
        if server.gone:
            return
        server.status = DELETED
        server.task_state = None
        server.terminated = self.core.stamp().rstrip("Z") + ".000000"
        self.used_cores -= server.flavor["vcpus"]
        self.used_ram -= server.flavor["ram"]
        self.servers.changed(server, self.core.stamp())
        self.core.events["servers deleted"] += 1
        self.observer.absent(server.id)
        for port in self.network.ports_of(server.id):
            if self.core.happens(self.core.knobs.port_leak_rate, "port leaks"):
                self.network.set_status(port, "DOWN")
            else:
                self.network.delete_port(port["id"])
        for key in server.volumes:
            volume = self.volumes.volumes.get(key)
            self.volumes.detach(volume)
            if not self.core.happens(self.core.knobs.volume_leak_rate, "volume leaks"):
                self.volumes.delete(key)

    def fail(self, server: Server, message: str, code: int = 500) -> None:
        """The server goes to ERROR with this fault."""
        if server.gone:
            return
        server.status = ERROR
        server.task_state = None
        server.fault = {"code": code, "created": self.core.stamp(), "message": message}
        self.servers.changed(server, self.core.stamp())
        self.core.events["servers failed"] += 1

    def release_stuck(self) -> None:
        """Ends what is stuck: deletions happen, builds become active."""
        for server in self.servers:
            if server.task_state == "deleting":
                self.remove(server)
            elif _boots(server):
                self._finish_boot(server)

    def refresh_addresses(self, server_id: str) -> None:
        """Writes the addresses of the server's ports and floating IPs into an active server."""
        server = self.servers.find(server_id)
        if server is None or server.status != ACTIVE:
            return
        server.addresses = {}
        for port in self.network.ports_of(server.id):
            entries = server.addresses.setdefault(self.network.networks.get(port["network_id"])["name"], [])
            found = [(fixed["ip_address"], "fixed") for fixed in port["fixed_ips"]]
            floating_ips = self.network.floating_ips.matching({"port_id": [port["id"]]})
            found += [(entry["floating_ip_address"], "floating") for entry in floating_ips]
            for address, kind in found:
                entries.append(
                    {
                        "version": 6 if ":" in address else 4,
                        "addr": address,
                        "OS-EXT-IPS:type": kind,
                        "OS-EXT-IPS-MAC:mac_addr": port["mac_address"],
                    }
                )
        self.servers.touched(server)

    def console(self, server: Server) -> str:
        """What the server wrote to its console."""
        return f"[    0.000000] Linux version (simulated) of {server.name}\n{server.name} login: \n"

    def _check_quota(self, spec: CreateSpec) -> None:
        quota = self.core.knobs.quota
        flavor = spec.flavor
        wanted = (
            ("instances", 1, len(self.servers), quota.instances),
            ("cores", flavor["vcpus"], self.used_cores, quota.cores),
            ("ram", flavor["ram"], self.used_ram, quota.ram),
        )
        over = sorted(entry for entry in wanted if 0 <= entry[3] < entry[1] + entry[2])
        if over:
            names, requested, used, limits = (", ".join(str(entry[index]) for entry in over) for index in range(4))
            text = f"Quota exceeded for {names}: Requested {requested}, but already used {used} of {limits} {names}"
            raise ApiError(403, self.core.turn("over quota", text, _over_limit(over)))
        if 0 <= quota.ports < len(self.network.ports) + len(spec.networks):
            raise ApiError(403, "Maximum number of ports exceeded")

    def _begin_boot(self, server: Server, spec: CreateSpec) -> None:
        rules = [rule for rule in self.core.knobs.boots if rule.flavor in ("", server.flavor["name"])]
        rules = [rule for rule in rules if rule.image in ("", server.image_id)]
        rule = next((rule for rule in rules if self.core.applies(rule, "boot faults")), None)
        if server.flavor["name"] == IMPOSSIBLE_FLAVOR or (rule is not None and rule.kind == kinds.NO_VALID_HOST):
            self._after_boot_time(lambda: self._fail_boot(server, NO_VALID_HOST))
            return
        try:
            if spec.volume_size:
                server.volumes.append(self.volumes.create(spec.volume_size, server.id)["id"])
            for network_id in spec.networks:
                with_addresses = rule is None or rule.kind != kinds.NO_ADDRESS
                self.network.create_port(network_id, server.id, f"compute:{server.zone}", with_addresses)
        except ApiError as error:
            fault = error.message
            if error.kind == "IpAddressGenerationFailure":
                fault = "Failed to allocate the network(s), not rescheduling."
            self._after_boot_time(lambda: self._fail_boot(server, f"Build of instance {server.id} aborted: {fault}"))
            return
        self._after_boot_time(lambda: self._end_boot(server, rule))

    def _after_boot_time(self, action: Callable[[], None]) -> None:
        self.core.after(self.core.knobs.boot_seconds, "boot", action)

    def _end_boot(self, server: Server, rule: BootRule | None) -> None:
        if rule is not None and rule.kind == kinds.ERROR:
            self._fail_boot(server, rule.message)
        elif (rule is None or rule.kind != kinds.STUCK) and _boots(server):
            self._finish_boot(server)

    def _fail_boot(self, server: Server, message: str) -> None:
        if _boots(server):
            self.fail(server, message)

    def _finish_boot(self, server: Server) -> None:
        server.status = ACTIVE
        server.task_state = None
        server.launched = self.core.stamp().rstrip("Z") + ".000000"
        for port in self.network.ports_of(server.id):
            self.network.set_status(port, UP)
        self.servers.changed(server, self.core.stamp())
        self.refresh_addresses(server.id)
        self.core.events["servers active"] += 1

    def _show(self, server: Server) -> None:
        server.listed = True
        self.servers.touched(server)


def _over_limit(over: list[tuple[str, int, int, int]]) -> str:
    """What Nova says where Keystone has the limits."""
    names = {"instances": "servers", "cores": "class:VCPU", "ram": "class:MEMORY_MB"}
    texts = [
        f"Resource {names[name]} is over limit of {limit} due to current usage {used} and delta {wanted}"
        for name, wanted, used, limit in over
    ]
    return f"Project 8 is over a limit for [{', '.join(texts)}]"


def _boots(server: Server) -> bool:
    return server.status == BUILD and server.task_state != "deleting"
