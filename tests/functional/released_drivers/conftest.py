# SPDX-License-Identifier: Apache-2.0
"""A launcher for each row, and the table in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.functional.released_drivers.cloud import Surroundings
from tests.functional.released_drivers.rows import CLUSTERS, ROWS
from tests.functional.released_drivers.site import Site
from tests.functional.released_drivers.table import results
from tests.support.kubernetes_rig import KubernetesRig
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesRig]:
    """A Kubernetes control plane; it runs when somebody starts it."""
    made = KubernetesRig(tmp_path_factory.mktemp("kubernetes") / "rig")
    yield made
    made.stop()


class RowScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no type hints
    """Each row in one process, and those that share a control plane of Kubernetes in the same."""

    # xdist's documentation names this method for schedulers of one's own.
    def _split_scope(self, nodeid: str) -> str:
        row = nodeid.partition("[")[2].rstrip("]")
        return "kubernetes" if row in {each.driver for each in CLUSTERS} else row


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> RowScheduling:
    return RowScheduling(config, log)


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.driver)
def site(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    zookeeper: ZooKeeperServer,
    new_chroot: Callable[[], str],
    sshd: SshServer,
    rig: KubernetesRig,
) -> Iterator[Site]:
    """A row, not started."""
    chroot = new_chroot()
    znodes = PoolZnodes(zookeeper.plain_hosts(chroot))
    znodes.start()
    directory = tmp_path_factory.mktemp(request.param.driver)
    made = Site(request.param(Surroundings(directory, znodes, sshd, rig)), zookeeper, chroot)
    yield made
    made.stop()
    znodes.stop()


@pytest.fixture(scope="module")
def running(site: Site) -> Site:
    """A row whose launcher serves."""
    site.start()
    return site


@pytest.fixture
def launching(running: Site) -> Site:
    """A row whose driver makes nodes."""
    if running.cloud.no_launch:
        pytest.skip(f"the driver {running.cloud.driver} makes no nodes: {running.cloud.no_launch}")
    return running


@pytest.fixture
def sweeping(launching: Site) -> Site:
    """A row whose driver looks for what was leaked."""
    if launching.cloud.no_sweep:
        pytest.skip(f"leaks of the driver {launching.cloud.driver} are not found: {launching.cloud.no_sweep}")
    return launching


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A table of what each driver did."""
    outcomes = {
        report.nodeid.partition("::test_")[2].partition("@")[0]: outcome
        for outcome in ("passed", "skipped", "failed", "error")
        for report in terminalreporter.stats.get(outcome, [])
    }
    terminalreporter.section("drivers of nodepool 11.0.0")
    terminalreporter.write_line("\n".join(results(outcomes)))
