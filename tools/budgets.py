# SPDX-License-Identifier: Apache-2.0
"""How long each tox environment and the whole of CI may take, and which environments run beside each other.

A budget is two to three times what was measured on two cores: a machine that is busy passes, a run that grows with each
change does not. What fails on its budget is made faster; the budget grows only with what it tests.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Environment:
    """A tox environment.

    :param budget: seconds that it may take, its virtualenv included.
    :param tests: it is a run of pytest: when its time is over it ends by itself, and says which tests were slow.
    """

    name: str
    budget: int
    tests: bool = False


#: Seconds for everything together.
TOTAL_BUDGET = 45 * 60

#: A row is run in this order, one after the other; rows run beside each other. Most tests have a row of their own,
#: because each of them uses all cores. The second row fills the time in which they wait.
ROWS: tuple[tuple[Environment, ...], ...] = (
    (
        Environment("py3", 30 * 60, tests=True),
        Environment("chaos-short", 9 * 60, tests=True),
    ),
    (
        Environment("lint", 60),
        Environment("types", 5 * 60),
        Environment("imports", 60),
        Environment("docs", 2 * 60),
        Environment("package", 2 * 60),
        # One process and a browser, which wait for each other.
        Environment("browser", 6 * 60, tests=True),
        # These are not in the first row, because that one would be too long then.
        Environment("interop", 8 * 60, tests=True),
        Environment("released-drivers", 11 * 60, tests=True),
        Environment("migration", 8 * 60, tests=True),
    ),
)

#: Only where there is a cloud or a rig (tools/functional-openstack says how): at the end of the first row.
ON_A_CLOUD = Environment("functional-openstack", 15 * 60, tests=True)

#: Only where there is a Kubernetes rig (tools/functional-kubernetes says how): at the end of the second row.
ON_KUBERNETES = Environment("functional-kubernetes", 10 * 60, tests=True)

#: Only where images can be built, too (tools/functional-builder says how): after it.
WITH_BUILDS = Environment("functional-builder", 8 * 60, tests=True)

#: What ``tools/test --all`` runs besides, in the first row: slow, or root and large downloads.
BEFORE_A_RELEASE = (
    Environment("functional-demo", 8 * 60, tests=True),
    Environment("functional-azurite", 5 * 60, tests=True),
    Environment("lower-bounds", 25 * 60, tests=True),
    Environment("chaos-images", 12 * 60),
)

#: Only where images of containers can be built (tools/functional-containers says how).
WITH_CONTAINERS = Environment("functional-containers", 20 * 60, tests=True)

#: Only where a Debian can be made (tools/functional-install says how).
WITH_DEBIAN = (
    Environment("functional-install", 20 * 60, tests=True),
    Environment("functional-tutorial", 25 * 60, tests=True),
)

#: Seconds for everything together with ``--all``.
TOTAL_BUDGET_OF_ALL = 190 * 60
