# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about static hosts: name, port and host keys of each, many at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Final

from nodepool.driver.framework.check_result import CheckResult
from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.static.checks import HostChecker, HostKeysMissing

if TYPE_CHECKING:
    from nodepool.plan.static_hosts import HostFacts, HostSpec

#: Longest time that all hosts together are given, in seconds.
LIMIT_SECONDS: Final = 60.0


def host_checks(name: str, hosts: Collection[HostSpec], limit: float = LIMIT_SECONDS) -> Iterator[CheckResult]:
    """One result for each host. Blocks until all have answered, or their timeouts are over.

    :param name: of the provider.
    :param limit: seconds after which hosts that were not looked at yet are left out.
    """
    checker = HostChecker(f"Check-{name}", len(hosts))
    found = {spec.id: (spec, checker.check(spec)) for spec in hosts}
    try:
        wait([future for _, future in found.values()], limit)
    finally:
        checker.stop()
    for spec, future in found.values():
        yield _result(spec, future, limit)


def _result(spec: HostSpec, future: Future[HostFacts], limit: float) -> CheckResult:
    subject = f"host {spec.id}"
    if not future.done() or future.cancelled():
        return CheckResult(subject, False, f"not looked at within {limit:g} s", "check fewer providers at a time")
    try:
        facts = future.result()
    except HostKeysMissing as error:
        return CheckResult(
            subject, False, str(error), "correct host-key; if nobody has changed the host, it is another one"
        )
    except ScanFailed as error:
        known = not str(error).startswith("cannot resolve")
        remedy = "start it, or correct name and connection-port" if known else "correct name, or the name service"
        return CheckResult(subject, False, str(error) or type(error).__name__, remedy)
    if not spec.check:
        return CheckResult(subject, True, "its name is known; it is not contacted (host-key-checking: false)")
    return CheckResult(
        subject, True, f"answers with {len(facts.host_keys)} host keys" if facts.host_keys else "answers"
    )
