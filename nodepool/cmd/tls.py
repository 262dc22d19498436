# SPDX-License-Identifier: Apache-2.0
"""``nodepool-tls``: certificates for ZooKeeper's servers and clients (reference/man/nodepool-tls)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nodepool.clock import utc_text, wall_time
from nodepool.cmd import app

if TYPE_CHECKING:
    from nodepool.cmd.tls_authority import Authority, Certificate

PROG: Final = "nodepool-tls"
#: How long certificates are good for, in days.
AUTHORITY_DAYS: Final = 3650
DAYS: Final = 825
#: ``renew`` makes new those that end within so many days.
WITHIN_DAYS: Final = 60
_DAY: Final = 86400
_MOST_DAYS: Final = 36500


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=PROG, description="Makes certificates for ZooKeeper with TLS, and says where to put them."
    )
    app.add_version_option(parser)
    parser.add_argument(
        "-d",
        "--directory",
        type=Path,
        default=Path("zk-tls"),
        metavar="DIR",
        help="directory of the authority (default: %(default)s)",
    )
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".rstrip())
        made.set_defaults(run=run)
        return made

    add("init", _init, "make the authority", "Its key stays in the directory.").add_argument(
        "--name", default=f"ZooKeeper authority {_today()}", help="its name (default: with the date of today)"
    )
    server = add("server", _server, "make key and certificate of a ZooKeeper server")
    server.add_argument("name", metavar="NAME", help="host name that clients use")
    server.add_argument("hosts", metavar="HOST", nargs="*", help="further names and addresses of it")
    client = add("client", _client, "make key and certificate of a client", "Nodepool, Zuul: one each.")
    client.add_argument("name", metavar="NAME", help="for the name of the file, such as nodepool")
    add("list", _list, "show all certificates, and when they expire")
    renew = add(
        "renew",
        _renew,
        "make new certificates for the same keys and names",
        "Files keep owner and mode. Without arguments: those that expire soon.",
    )
    renew.add_argument("names", metavar="NAME", nargs="*", help="servers and clients")
    renew.add_argument("--all", action="store_true", help="all servers and clients")
    renew.add_argument(
        "--within",
        type=_days,
        default=WITHIN_DAYS,
        metavar="DAYS",
        help="what expires within so many days (default: %(default)s)",
    )
    add("new-authority", _new_authority, "begin the change to a new authority", "ca.pem has both then.").add_argument(
        "--name",
        default=f"ZooKeeper authority {_today()}",
        help="its name, not that of the old one (default: with the date of today)",
    )
    add("drop-old-authority", _drop_old, "end the change to a new authority", "ca.pem has the new one only then.")
    for name, days in (
        *((name, AUTHORITY_DAYS) for name in ("init", "new-authority")),
        *((name, DAYS) for name in ("server", "client", "renew")),
    ):
        commands.choices[name].add_argument(
            "--days",
            type=_days,
            default=days,
            metavar="DAYS",
            help="how long it is good for (default: %(default)s)",
        )
    return parser


def _today() -> str:
    """Of the name of an authority: that of the next one is to be another one."""
    return utc_text(wall_time())[:10]


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= _MOST_DAYS:
        raise ValueError
    return days


def _authority(options: argparse.Namespace) -> Authority:
    from nodepool.cmd.tls_authority import Authority

    return Authority(options.directory)


def _init(options: argparse.Namespace) -> int:
    authority = _authority(options)
    authority.create(options.name, options.days)
    _wrote(authority.key_file, authority.file)
    print(f"Keep {authority.key_file} here and in a backup: who has it can make certificates that ZooKeeper trusts.")
    print(f"Next: {PROG} -d {options.directory} server NAME, {PROG} -d {options.directory} client NAME")
    return 0


def _server(options: argparse.Namespace) -> int:
    authority = _authority(options)
    made = authority.issue("server", options.name, options.hosts, options.days)
    _wrote(made.file)
    _tell_server(authority, made)
    print(_ZOO_CFG)
    return 0


def _client(options: argparse.Namespace) -> int:
    authority = _authority(options)
    made = authority.issue("client", options.name, (), options.days)
    _wrote(made.key, made.file)
    _tell_client(authority, made)
    print(_ZUUL_CONF if _is_zuul(made) else _NODEPOOL_YAML)
    return 0


def _tell_server(authority: Authority, made: Certificate) -> None:
    print(f"On the ZooKeeper server {made.name}:")
    print(f"  {made.file}  ->  /etc/zookeeper/tls/server.pem  (owner zookeeper, mode 0600)")
    print(f"  {authority.file}  ->  /etc/zookeeper/tls/ca.pem  (owner root, mode 0644)")


def _is_zuul(client: Certificate) -> bool:
    return "zuul" in client.name.lower()


def _tell_client(authority: Authority, made: Certificate) -> None:
    if _is_zuul(made):
        where, group, place = "On the machines of Zuul", "the group of Zuul's user", "/etc/zuul"
    else:
        where, group, place = "On the machine of Nodepool", "group nodepool", "/etc/nodepool"
    print(f"{where}, for the client {made.name}:")
    print(f"  {made.file}  ->  {place}/zk-client.pem  (owner root, mode 0644)")
    print(f"  {made.key}  ->  {place}/zk-client.key  (owner root, {group}, mode 0640)")
    print(f"  {authority.file}  ->  {place}/zk-ca.pem  (owner root, mode 0644)")


def _list(options: argparse.Namespace) -> int:
    from nodepool.listing.table import Column, Table, render

    now = wall_time()
    columns = (
        Column("Kind", "kind"),
        Column("Name", "name"),
        Column("Hosts", "hosts", ", ".join),
        Column("Expires in", "expires_in"),
        Column("Authority", "authority"),
        Column("File", "file"),
    )
    rows = [
        [
            *(one.kind, one.name, list(one.hosts), _left(one.expires, now)),
            *("present" if one.current else "old", str(one.file)),
        ]
        for one in _authority(options).certificates()
    ]
    print(render(Table(columns, rows)))
    return 0


def _left(expires: float, now: float) -> str:
    days = int((expires - now) // _DAY)
    return f"{days} days" if days >= 0 else "expired"


def _renew(options: argparse.Namespace) -> int:
    authority, now = _authority(options), wall_time()
    there = [one for one in authority.certificates() if one.kind != "authority"]
    unknown = set(options.names) - {one.name for one in there}
    if unknown:
        known = ", ".join(sorted({one.name for one in there})) or "none"
        raise app.CommandError(
            f"no server or client is called {', '.join(sorted(unknown))}", hint=f"there are: {known}"
        )

    def is_due(one: Certificate) -> bool:
        if options.names:
            return one.name in options.names
        return options.all or not one.current or one.expires < now + options.within * _DAY

    chosen = [one for one in there if is_due(one)]
    for one in chosen:
        made = authority.renew(one, options.days)
        _wrote(made.file)
        (_tell_server if made.kind == "server" else _tell_client)(authority, made)
    if not chosen:
        print(f"Nothing to do: no certificate expires within {options.within} days.")
    else:
        print("Servers of ZooKeeper read it after a restart, one after the other; Nodepool with its next connection.")
    return 0


def _new_authority(options: argparse.Namespace) -> int:
    authority = _authority(options)
    kept = authority.replace(options.name, options.days)
    _wrote(authority.file, authority.key_file)
    print(f"The old key is {kept}. Delete it at the end.")
    print(f"1. Put {authority.file} on every ZooKeeper server and every client, and restart them one after the other.")
    print(f"2. {PROG} -d {options.directory} renew --all; put the new certificates into place, and restart again.")
    print(f"3. {PROG} -d {options.directory} drop-old-authority; put ca.pem into place everywhere once more.")
    return 0


def _drop_old(options: argparse.Namespace) -> int:
    authority = _authority(options)
    authority.drop_old()
    _wrote(authority.file)
    return 0


def _wrote(*paths: Path) -> None:
    for path in paths:
        print(f"Wrote {path} (mode {path.stat().st_mode & 0o777:04o})")


#: What follows the places of a server's files. Keys of ZooKeeper 3.6 and newer.
_ZOO_CFG: Final = """\
Its zoo.cfg (restart ZooKeeper after a change of these files):
  secureClientPort=2281
  serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
  ssl.keyStore.location=/etc/zookeeper/tls/server.pem
  ssl.keyStore.type=PEM
  ssl.trustStore.location=/etc/zookeeper/tls/ca.pem
  ssl.trustStore.type=PEM
  ssl.clientAuth=need
With several servers also these, so that they speak TLS with each other:
  sslQuorum=true
  ssl.quorum.keyStore.location=/etc/zookeeper/tls/server.pem
  ssl.quorum.keyStore.type=PEM
  ssl.quorum.trustStore.location=/etc/zookeeper/tls/ca.pem
  ssl.quorum.trustStore.type=PEM"""

#: What follows the places of a client's files.
_NODEPOOL_YAML: Final = """\
Its nodepool.yaml:
  zookeeper-tls:
    cert: /etc/nodepool/zk-client.pem
    key: /etc/nodepool/zk-client.key
    ca: /etc/nodepool/zk-ca.pem"""
_ZUUL_CONF: Final = """\
Its zuul.conf:
  [zookeeper]
  tls_cert=/etc/zuul/zk-client.pem
  tls_key=/etc/zuul/zk-client.key
  tls_ca=/etc/zuul/zk-ca.pem"""


def _work(options: argparse.Namespace) -> int:
    status: int = options.run(options)
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = make_parser().parse_args(argv)
    return app.run(PROG, lambda: _work(options))


if __name__ == "__main__":
    sys.exit(main())
