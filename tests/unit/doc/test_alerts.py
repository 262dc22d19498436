# SPDX-License-Identifier: Apache-2.0
"""The page about alerts has each rule of etc/prometheus-alerts.yaml."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_each_rule_has_a_line() -> None:
    groups = yaml.safe_load((ROOT / "etc" / "prometheus-alerts.yaml").read_text(encoding="utf-8"))["groups"]
    page = (ROOT / "doc" / "source" / "how-to" / "alerts.rst").read_text(encoding="utf-8")
    rows = re.findall(r"^\* ``(\w+)``: .", page, re.MULTILINE)
    assert rows == [rule["alert"] for group in groups for rule in group["rules"]]
