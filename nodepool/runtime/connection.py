# SPDX-License-Identifier: Apache-2.0
"""The connection to ZooKeeper that a configuration describes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nodepool import log_names
from nodepool.config.tls_check import refuse_bad_tls_files
from nodepool.exceptions import ZKException
from nodepool.zk.client import ZooKeeperClient, connection_string

if TYPE_CHECKING:
    from nodepool.config.objects import Config

log = logging.getLogger(log_names.NODEPOOL)


def make_client(config: Config) -> ZooKeeperClient:
    """The connection that a configuration describes; not connected yet.

    :raises ZKException: there are no servers.
    :raises ConfigError: a TLS file cannot be used.
    """
    if not config.zookeeper_servers:
        raise ZKException("no zookeeper-servers are configured")
    refuse_bad_tls_files(config)
    cert, key, ca = tls_files(config)
    return ZooKeeperClient(
        connection_string(config.zookeeper_servers),
        timeout=config.zookeeper_timeout,
        tls_cert=cert,
        tls_key=key,
        tls_ca=ca,
    )


def tls_files(config: Config) -> tuple[str | None, str | None, str | None]:
    """PEM files of certificate, key and CA."""
    return config.zookeeper_tls_cert, config.zookeeper_tls_key, config.zookeeper_tls_ca


def follow(client: ZooKeeperClient, config: Config) -> None:
    """Make a connection that of a changed configuration (G-13); what needs a restart is logged."""
    hosts = connection_string(config.zookeeper_servers)
    if hosts != client.hosts:
        try:
            client.reset_hosts(hosts)
        except ZKException as error:
            log.error("zookeeper-servers: %s; this takes effect after a restart", error)
    if tls_files(config) != client.tls_files:
        log.warning("zookeeper-tls changed: this takes effect after a restart")
