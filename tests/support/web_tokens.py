# SPDX-License-Identifier: Apache-2.0
"""Tokens as ``zuul create-auth-token`` makes them, and who accepts them."""

from __future__ import annotations

import time
from typing import Any, Final

import jwt

from nodepool.config.webapp import Authenticator, OperatorRule

SECRET: Final = "a secret of thirty-two characters"
ISSUER: Final = "zuul_operator"
CLIENT: Final = "nodepool.example"
#: The section of the configuration.
SECTION: Final = {
    "name": "zuul",
    "driver": "HS256",
    "secret": SECRET,
    "issuer_id": ISSUER,
    "client_id": CLIENT,
}
OPERATORS: Final = {"claim": "zuul.admin", "contains": "ops"}


def authenticator(**changes: Any) -> Authenticator:
    """The section, with changes."""
    return Authenticator({**SECTION, **changes})


def operator_rule() -> OperatorRule:
    return OperatorRule(OPERATORS)


def claims(**changes: Any) -> dict[str, Any]:
    """What an operator's token says that is good for ten minutes; None takes a claim away."""
    now = int(time.time())
    found = {
        "iat": now,
        "exp": now + 600,
        "iss": ISSUER,
        "aud": CLIENT,
        "sub": "alice",
        "zuul": {"admin": ["ops"]},
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def token(secret: str = SECRET, algorithm: str = "HS256", **changes: Any) -> str:
    """A signed token; see `claims`."""
    return jwt.encode(claims(**changes), secret, algorithm)


def viewer_token() -> str:
    """Of somebody who may only look."""
    return token(sub="bob", zuul=None)
