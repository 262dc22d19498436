# SPDX-License-Identifier: Apache-2.0
"""What we show people as an example must be right: files in etc/, and the configuration in the documentation."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import yaml

from nodepool.config.loader import load_config
from nodepool.config.validator import validate

ROOT = Path(__file__).parents[2]

#: What tools/demo puts into the environment.
DEMO_ENVIRONMENT = {
    "NODEPOOL_DEMO_DIRECTORY": "/somewhere",
    "NODEPOOL_DEMO_SSH_PORT": "2222",
    "NODEPOOL_DEMO_WEB_PORT": "8005",
    "NODEPOOL_DEMO_ZOOKEEPER_PORT": "2281",
}


def yaml_blocks(path: Path) -> list[str]:
    """The YAML examples in a reStructuredText file."""
    found = re.findall(r"^\.\. code-block:: yaml\n\n((?:    .*\n|\n)+)", path.read_text(), re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


@pytest.mark.parametrize("name", ["nodepool.yaml", "demo.yaml"])
def test_sample_configuration(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples have no problem, not even an unknown key."""
    for variable, value in DEMO_ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    path = str(ROOT / "etc" / name)
    assert validate(path) == []
    assert load_config(path, strict=True).providers["lab"].pools


def test_readme_configuration(tmp_path: Path) -> None:
    """The configuration of the README can be copied as it is; that of OpenStack beside the rest of it."""
    static, openstack = map(yaml.safe_load, yaml_blocks(ROOT / "README.rst"))
    both = {**static, **{key: static[key] + openstack[key] for key in openstack}}
    path = tmp_path / "nodepool.yaml"
    for whole in (static, both):
        path.write_text(yaml.safe_dump(whole))
        assert validate(str(path)) == []


def test_documented_providers(tmp_path: Path) -> None:
    """Provider sections in the documentation have only keys and values that are accepted."""
    blocks = [block for page in (ROOT / "doc" / "source").rglob("*.rst") for block in yaml_blocks(page)]
    providers = [data["providers"] for block in blocks if "providers" in (data := yaml.safe_load(block))]
    assert providers
    for number, section in enumerate(providers):
        pools = [pool for provider in section for pool in provider["pools"]]
        labels = sorted(
            {label for pool in pools for host in pool.get("nodes", []) for label in host["labels"]}
            | {label["name"] for pool in pools for label in pool.get("labels", [])}
        )
        whole = {
            "zookeeper-servers": [{"host": "localhost"}],
            "zookeeper-tls": {"cert": "c", "key": "k", "ca": "a"},
            "labels": [{"name": label} for label in labels],
            "providers": section,
        }
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(whole))
        assert validate(str(path)) == []
