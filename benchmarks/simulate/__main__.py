# SPDX-License-Identifier: Apache-2.0
"""``tools/simulate``: costs in virtual time, a check with real launchers, and what they say of a large site."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.simulate import real
from benchmarks.simulate.curves import draw
from benchmarks.simulate.extrapolate import REAL_CPU, Site, ensembles_needed, first_limit, highest_rate, model, use
from benchmarks.simulate.fleet import Cost, Demand, measure

DESCRIPTION = """\
Run real launchers in virtual time, with cloud providers in memory and steady demand, and count what a request costs:
CPU of launchers, packets to ZooKeeper, events of watches. From the costs with several numbers of launchers follows what
a large site needs, and which limit comes first. --check runs the same on real launchers and a real ZooKeeper."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tools/simulate", description=DESCRIPTION)
    parser.add_argument("--launchers", default="1,2,4", metavar="N,N", help="in the runs (default: %(default)s)")
    parser.add_argument("--providers", type=int, default=8, metavar="N", help="in the runs (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=300, metavar="N", help="in each run (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=20.0, metavar="N", help="requests/s in the runs (%(default)g)")
    parser.add_argument("--check", action="store_true", help="the same with real launchers and a real ZooKeeper")
    parser.add_argument(
        "--site",
        default="1000,100000,50",
        metavar="RATE,NODES,LAUNCHERS",
        help="the large site: requests per second, nodes, launchers (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all costs")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the curves")
    options = parser.parse_args(arguments)
    try:
        options.numbers = [int(number) for number in options.launchers.split(",")]
        rate, nodes, launchers = options.site.split(",")
        options.large = Site(float(rate), int(nodes), int(launchers))
    except ValueError as error:
        parser.error(str(error))
    if len(set(options.numbers)) < 2 or min(options.numbers) < 1:
        parser.error("--launchers: two or more different numbers are needed")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. Returns the exit code."""
    options = parse(arguments)
    demands = [
        Demand(number, options.providers, options.rate, options.requests) for number in sorted(set(options.numbers))
    ]
    print("In virtual time:")
    simulated = [_shown(measure(demand)) for demand in demands]
    checked: list[Cost] = []
    if options.check:
        print("Real launchers, real ZooKeeper:")
        checked = [_shown(real.measure(demand)) for demand in demands]
    factor = cpu_factor(simulated, checked)
    found = model(simulated, checked)
    origin = "" if checked else " (of an earlier run; --check measures it)"
    print(f"\nCPU of real launchers over that of simulated ones: {factor:.2f}{origin}")
    print(
        f"A request costs, with n launchers: CPU {found.cpu.fixed * 1000:.2f} + {found.cpu.each * 1000:.2f} n ms, ",
        end="",
    )
    print(f"packets {found.packets.fixed + found.client_packets:.1f} + {found.packets.each:.1f} n, ", end="")
    print(f"events {found.events.fixed:.1f} + {found.events.each:.1f} n")
    for count in (1, 2, 5, 10, 20, 50):
        print(f"One ensemble and {count} launchers serve at most {highest_rate(found, count):.0f} requests/s")
    site: Site = options.large
    print(f"\n{site.rate:g} requests/s, {site.nodes} nodes, {site.launchers} launchers:")
    for ensembles in sorted({1, 2, 5, 10, 25, ensembles_needed(found, site) or 1}):
        if ensembles <= site.launchers:
            used = use(found, Site(site.rate, site.nodes, site.launchers, ensembles))
            shares = ", ".join(f"{name} {share:.0%}" for name, share in used.items())
            print(f"  {ensembles} ensembles: first limit {first_limit(used)[0]}; {shares}")
    if options.json:
        everything: dict[str, Any] = {
            "simulated": [asdict(cost) for cost in simulated],
            "real": [asdict(cost) for cost in checked],
            "cpu_factor": factor,
            "model": asdict(found),
        }
        options.json.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    if options.svg:
        draw(options.svg, found, simulated, checked, factor)
    return 0


def cpu_factor(simulated: Sequence[Cost], checked: Sequence[Cost]) -> float:
    """CPU of real launchers over that of simulated ones, in the runs that both have."""
    of_real = {cost.launchers: cost.cpu for cost in checked}
    both = [(of_real[cost.launchers], cost.cpu) for cost in simulated if cost.launchers in of_real]
    return sum(one for one, _ in both) / sum(other for _, other in both) if both else REAL_CPU


def _shown(cost: Cost) -> Cost:
    print(
        f"  {cost.launchers} launchers, {cost.providers} providers, {cost.requests} requests: "
        f"CPU {cost.cpu * 1000:.2f} ms, packets {cost.packets:.1f} and {cost.client_packets:.1f} of the client, "
        f"events {cost.events:.0f}, wait {cost.wait:.1f} s",
        flush=True,
    )
    return cost


if __name__ == "__main__":
    sys.exit(main())
