# SPDX-License-Identifier: Apache-2.0
"""The rights that the documentation tells operators to give to a launcher of Kubernetes."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import yaml

from tests.support.launcher import ROOT

RIGHTS = ROOT / "doc" / "source" / "drivers" / "kubernetes" / "rights.rst"
RBAC_GROUP = "rbac.authorization.k8s.io"


def documented_role(shared_roles: bool = True, cluster_room: bool = False, accounts: bool = True) -> Any:
    """The cluster role of the page, with the changes that the text below it names for these keys.

    :param accounts: False = without what the text says may be left out.
    """
    text = RIGHTS.read_text(encoding="utf-8")
    (block,) = re.findall(r"\.\. code-block:: yaml\n\n((?:    .*\n|\n)+)", text)
    role, sentences = yaml.safe_load(textwrap.dedent(block)), " ".join(text.split())
    assert role["kind"] == "ClusterRole"
    for rule in role["rules"]:
        if not shared_roles and rule["apiGroups"] == [RBAC_GROUP]:
            assert "``create`` for ``roles`` instead of ``clusterroles``" in sentences
            rule["resources"] = ["roles" if name == "clusterroles" else name for name in rule["resources"]]
        if not accounts and rule["resources"] == ["serviceaccounts"]:
            assert "``list`` and ``watch`` of ``serviceaccounts`` may be left out" in sentences
            rule["verbs"] = ["create"]
    if cluster_room:
        assert "With ``cluster-room`` the account also needs ``list`` for ``nodes``" in sentences
        role["rules"].append({"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]})
    return role
