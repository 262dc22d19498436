# SPDX-License-Identifier: Apache-2.0
"""What programs import: the libraries of clouds and of image builds only when they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodepool.driver.registry import PATH_VARIABLE

CONFIG = """
zookeeper-servers: [{host: localhost}]
zookeeper-tls: {cert: c, key: k, ca: a}
labels: [{name: small}]
providers:
"""
#: By driver. Its library is imported when the provider is made.
PROVIDERS = {
    "static": "- {name: lab, driver: static, pools: [{name: main, nodes: [{name: h, labels: [small], host-key: k}]}]}",
    "aws": """
- name: north
  driver: aws
  region-name: eu-north-1
  cloud-images: [{name: debian, image-id: ami-1, username: admin}]
  pools: [{name: main, labels: [{name: small, cloud-image: debian, instance-type: t3.small, key-name: zuul}]}]
""",
}
#: Those of our drivers, of the image build and of terminals, and of the drivers of 11.0.0.
HEAVY = {
    *("openstack", "keystoneauth1", "requests", "urllib3", "diskimage_builder", "rich"),
    *("azure", "boto3", "botocore", "cachetools", "google", "googleapiclient", "httplib2", "ibm_cloud_sdk_core"),
    *("ibm_platform_services", "ibm_vpc", "kubernetes", "msal", "msrestazure", "openshift"),
}


@pytest.mark.parametrize(
    "program",
    [
        "from nodepool.cmd import cli; assert cli.main(['-c', sys.argv[1], 'config-validate']) == 0",
        "from nodepool.cmd import node_changes, nodes, overview, providers; import nodepool.zk.zookeeper",
        "import nodepool.cmd.launcher, nodepool.launcher.supervisor as s; s.NodePool(sys.argv[1]).configuration.load()",
        "from nodepool.cmd import builder; builder.make_parser()",
    ],
    ids=["config-validate", "list", "launcher", "builder"],
)
@pytest.mark.parametrize("name", PROVIDERS)
def test_no_heavy_library(tmp_path: Path, program: str, name: str) -> None:
    path = tmp_path / "nodepool.yaml"
    path.write_text(CONFIG + PROVIDERS[name], encoding="utf-8")
    driver = tmp_path / "drivers" / "cloud"
    driver.mkdir(parents=True)
    # An extra driver that is offered, but not configured.
    (driver / "__init__.py").write_text("import sys\nsys.modules['boto3'] = sys\n", encoding="utf-8")
    code = f"import sys; {program}; sys.exit(', '.join({HEAVY} & set(sys.modules)) or 0)"
    command = [sys.executable, "-c", code, str(path)]
    environment = {**os.environ, PATH_VARIABLE: str(driver.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_lists_need_no_driver(tmp_path: Path) -> None:
    """``nodepool list`` takes as long with a provider of AWS as without: it does not even load the driver."""
    path = tmp_path / "nodepool.yaml"
    path.write_text(CONFIG + PROVIDERS["aws"], encoding="utf-8")
    code = (
        "import sys; from nodepool.cmd import cli; cli.main(['-c', sys.argv[1], 'list']);"
        "sys.exit(', '.join(name for name in sys.modules if name.startswith('nodepool.driver.aws')) or 0)"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # There are no certificates, so it ends before it connects, and after it has read the configuration.
    assert "zookeeper-tls" in done.stderr
    assert done.returncode == 0, done.stderr
