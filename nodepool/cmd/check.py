# SPDX-License-Identifier: Apache-2.0
"""``nodepool check``: can this machine serve the configuration? (reference/commands 2)"""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from nodepool.cmd.app import CommandError, listed
from nodepool.cmd.session import connect, quiet, say_what_is_waited_for, show
from nodepool.exceptions import ConfigError, ZKException

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.framework.checks import CheckResult
    from nodepool.zk.zookeeper import ZooKeeper

    Results = dict[str, list[CheckResult]]


def do_check(options: argparse.Namespace) -> int:
    """``nodepool check``; blocks for some calls to each cloud. Returns 1 if something failed.

    :raises CommandError: a provider is not in the configuration.
    """
    from nodepool.config.loader import load_config
    from nodepool.driver.framework.checks import CheckResult, failure
    from nodepool.listing.problems import check_table, print_checks

    results: Results = {"configuration": _configuration(options)}
    config: Config | None = None
    # What refuses the file as a whole is among the results already.
    with contextlib.suppress(ConfigError), quiet("nodepool.config"):
        config = load_config(options.config, options.secure)
    if config is not None:
        unknown = [name for name in options.providers if name not in config.providers]
        if unknown:
            there_are = listed("there are", config.providers)
            raise CommandError(f"provider {', '.join(unknown)} is not in the configuration; {there_are}")
        with contextlib.ExitStack() as stack:
            zk: ZooKeeper | None = None
            try:
                zk = stack.enter_context(connect(config))
                results["zookeeper"] = [CheckResult("connection", True, f"connected to {zk.client.hosts}")]
            except (ConfigError, ZKException) as error:
                results["zookeeper"] = [failure("connection", line) for line in str(error).splitlines()]
            if zk is not None and not options.providers:
                results["zookeeper"] += _min_ready_labels(config, zk)
            results |= _providers(config, options, zk)
    if sys.stdout.isatty() and options.format == "table" and not options.columns and not options.sort:
        print_checks(results, sys.stdout)
    else:
        show(check_table(results), options)
    found = [result for each in results.values() for result in each]
    failed = sum(not result.ok for result in found)
    if failed:
        print(f"nodepool: {failed} of {len(found)} checks failed", file=sys.stderr)
    return 1 if failed else 0


def _configuration(options: argparse.Namespace) -> list[CheckResult]:
    """What ``config-validate`` says of the files."""
    from nodepool.config.validator import validate
    from nodepool.driver.framework.checks import CheckResult
    from nodepool.listing.problems import is_error

    try:
        problems = validate(options.config, options.secure)
    except ConfigError as error:
        return [CheckResult("file", False, line) for line in str(error).splitlines()]
    found = [
        CheckResult(
            f"{problem.file}:{problem.line}" if problem.line else problem.file,
            not is_error(problem),
            f"{problem.key}: {problem.message}" if problem.key else problem.message,
            "" if is_error(problem) else "see config-validate",
        )
        for problem in problems
    ]
    return found or [CheckResult(options.config, True, "valid")]


def _min_ready_labels(config: Config, zk: ZooKeeper) -> list[CheckResult]:
    """Labels to keep ready that no launcher can serve: neither this file nor a registered one has them in a pool."""
    from nodepool.driver.framework.checks import CheckResult
    from nodepool.driver.framework.sections import UnavailableProviderConfig
    from nodepool.zk import components

    if any(isinstance(one, UnavailableProviderConfig) for one in config.providers.values()):
        # What is wrong with its section is the cause.
        return []
    served = {label for pool in components.read_pools(zk.client) for label in pool.supported_labels}
    return [
        CheckResult(
            f"label {name}",
            False,
            f"min-ready is {label.min_ready}, but no pool of this file and of the running launchers has the label",
            "add the label to a pool, or remove min-ready",
        )
        for name, label in config.labels.items()
        if label.min_ready > 0 and not label.pools and name not in served
    ]


def _providers(config: Config, options: argparse.Namespace, zk: ZooKeeper | None) -> Results:
    from nodepool.runtime.providers import LIMIT_SECONDS, check_providers

    wanted = {name: one for name, one in config.providers.items() if not options.providers or name in options.providers}
    with say_what_is_waited_for(f"{len(wanted)} providers", limit=LIMIT_SECONDS):
        checked = check_providers(wanted.values(), zk)
    seen = {} if zk is None else _other_installations(zk)
    # Instances are among the things that launchers saw.
    remedies = {name: {result.remedy for result in found} for name, found in seen.items()}
    return {
        f"provider {name}": [
            *(result for result in found if result.remedy not in remedies.get(name, ())),
            *seen.get(name, ()),
        ]
        for name, found in checked.items()
    }


def _other_installations(zk: ZooKeeper) -> dict[str, list[CheckResult]]:
    """D-10: what running launchers saw in the clouds of providers; this command lists instances only."""
    from nodepool.driver.framework.checks import CheckResult
    from nodepool.plan.ownerless import OTHERS, end_of_other, of_other
    from nodepool.plan.pool_summary import by_provider, largest, summarize
    from nodepool.zk import status

    return {
        name: [
            CheckResult(OTHERS, True, of_other(name, other, count), end_of_other(name, other))
            for other, count in sorted(largest(pool.other_installations for pool in pools).items())
        ]
        for name, pools in by_provider(summarize(status.read_pools(zk.client))).items()
    }
