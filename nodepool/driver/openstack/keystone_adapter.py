# SPDX-License-Identifier: Apache-2.0
"""`KeystoneAdapter`: keystoneauth's adapter for requests, with bounded answers.

Imported when a cloud is used: keystoneauth comes with openstacksdk.
"""

from __future__ import annotations

from typing import Final

from keystoneauth1.session import TCPKeepAliveAdapter

from nodepool.driver.framework.http.bounded import BoundedAdapter

#: Settings of keystoneauth's adapter that are kept.
TLS_SETTINGS: Final = ("tls_ciphers", "tls_min_version")


class KeystoneAdapter(BoundedAdapter, TCPKeepAliveAdapter):
    """Login and discovery of keystoneauth are bounded, too."""
