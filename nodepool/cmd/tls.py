# SPDX-License-Identifier: Apache-2.0
"""``nodepool-tls``: certificates for ZooKeeper's servers and clients (reference/man/nodepool-tls).

First the command, then the certificate authority in its directory (`Authority`).
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nodepool.clock import utc_text, wall_time
from nodepool.cmd import app
from nodepool.cmd.app import CommandError

PROG: Final = "nodepool-tls"
#: How long certificates are good for, in days.
AUTHORITY_DAYS: Final = 3650
DAYS: Final = 825
#: ``renew`` makes new those that end within so many days.
WITHIN_DAYS: Final = 60
_DAY: Final = 86400
_MOST_DAYS: Final = 36500
SERVER, CLIENT = "server", "client"
#: Of a file without secrets, in another place.
_READABLE: Final = "owner root, mode 0644"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    text = "Makes certificates for ZooKeeper with TLS, and says where to put them."
    parser = argparse.ArgumentParser(prog=PROG, description=text)
    app.add_version_option(parser)
    text = "directory of the authority (default: %(default)s)"
    parser.add_argument("-d", "--directory", type=Path, default=Path("zk-tls"), metavar="DIR", help=text)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".rstrip())
        made.set_defaults(run=run)
        return made

    # The next authority must have another name.
    today = utc_text(wall_time())[:10]
    init = add("init", _init, "make the authority", "Its key stays in the directory.")
    text = "its name (default: with the date of today)"
    init.add_argument("--name", default=f"ZooKeeper authority {today}", help=text)
    server = add("server", _issue, "make key and certificate of a ZooKeeper server")
    server.add_argument("name", metavar="NAME", help="host name that clients use")
    server.add_argument("hosts", metavar="HOST", nargs="*", help="further names and addresses of it")
    client = add("client", _issue, "make key and certificate of a client", "Nodepool, Zuul: one each.")
    client.add_argument("name", metavar="NAME", help="for the name of the file, such as nodepool")
    client.set_defaults(hosts=())
    add("list", _list, "show all certificates, and when they expire")
    text = "make new certificates for the same keys and names"
    renew = add("renew", _renew, text, "Files keep owner and mode. Without arguments: those that expire soon.")
    renew.add_argument("names", metavar="NAME", nargs="*", help="servers and clients")
    renew.add_argument("--all", action="store_true", help="all servers and clients")
    text = "what expires within so many days (default: %(default)s)"
    renew.add_argument("--within", type=_days, default=WITHIN_DAYS, metavar="DAYS", help=text)
    for name, days in {"init": AUTHORITY_DAYS, SERVER: DAYS, CLIENT: DAYS, "renew": DAYS}.items():
        text = "how long it is good for (default: %(default)s)"
        commands.choices[name].add_argument("--days", type=_days, default=days, metavar="DAYS", help=text)
    return parser


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= _MOST_DAYS:
        raise ValueError
    return days


def _init(options: argparse.Namespace) -> int:
    authority = Authority(options.directory)
    authority.create(options.name, options.days)
    _wrote(authority.key_file, authority.file)
    print(f"Keep {authority.key_file} here and in a backup: who has it can make certificates that ZooKeeper trusts.")
    print(f"Next: {PROG} -d {options.directory} server NAME, {PROG} -d {options.directory} client NAME")
    return 0


def _issue(options: argparse.Namespace) -> int:
    """``server`` and ``client``"""
    authority = Authority(options.directory)
    made = authority.issue(options.command, options.name, options.hosts, options.days)
    _wrote(*dict.fromkeys((made.key, made.file)))
    _print_places(authority, made)
    print(_ZOO_CFG if made.kind == SERVER else _ZUUL_CONF if _is_zuul(made) else _NODEPOOL_YAML)
    return 0


def _is_zuul(client: Certificate) -> bool:
    return "zuul" in client.name.lower()


def _print_places(authority: Authority, made: Certificate) -> None:
    """Where the files of a server or a client belong."""
    if made.kind == SERVER:
        where, place = f"On the ZooKeeper server {made.name}", "/etc/zookeeper/tls"
        files = [(made.file, "server.pem", "owner zookeeper, mode 0600"), (authority.file, "ca.pem", _READABLE)]
    else:
        where, group, place = "On the machine of Nodepool", "group nodepool", "/etc/nodepool"
        if _is_zuul(made):
            where, group, place = "On the machines of Zuul", "the group of Zuul's user", "/etc/zuul"
        where = f"{where}, for the client {made.name}"
        key = (made.key, "zk-client.key", f"owner root, {group}, mode 0640")
        files = [(made.file, "zk-client.pem", _READABLE), key, (authority.file, "zk-ca.pem", _READABLE)]
    print(f"{where}:")
    for file, name, how in files:
        print(f"  {file}  ->  {place}/{name}  ({how})")


def _list(options: argparse.Namespace) -> int:
    from nodepool.listing.table import Column, render, table_of

    now = wall_time()
    columns = (
        Column("Kind", "kind"),
        Column("Name", "name"),
        Column("Hosts", "hosts", ", ".join),
        Column("Expires in", "expires", lambda expires: _left(expires, now)),
        Column("Authority", "current", lambda current: "present" if current else "old"),
        Column("File", "file"),
    )
    print(render(table_of(columns, Authority(options.directory).certificates())))
    return 0


def _left(expires: float, now: float) -> str:
    days = int((expires - now) // _DAY)
    return f"{days} days" if days >= 0 else "expired"


def _renew(options: argparse.Namespace) -> int:
    authority, now = Authority(options.directory), wall_time()
    there = [one for one in authority.certificates() if one.kind != "authority"]
    unknown = set(options.names) - {one.name for one in there}
    if unknown:
        hint = app.listed("there are", sorted({one.name for one in there}))
        raise CommandError(f"no server or client is called {', '.join(sorted(unknown))}", hint=hint)

    def is_due(one: Certificate) -> bool:
        if options.names:
            return one.name in options.names
        return options.all or not one.current or one.expires < now + options.within * _DAY

    chosen = [one for one in there if is_due(one)]
    for one in chosen:
        made = authority.renew(one, options.days)
        _wrote(made.file)
        _print_places(authority, made)
    if not chosen:
        print(f"Nothing to do: no certificate expires within {options.within} days.")
    else:
        print("Servers of ZooKeeper read it after a restart, one after the other; Nodepool with its next connection.")
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


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = make_parser().parse_args(argv)
    return app.run(PROG, lambda: int(options.run(options)))


# `Authority`: a certificate authority in a directory, for ZooKeeper's servers and clients.
#
#     ca.key                   private key of the authority; mode 0600
#     ca.pem                   its certificate; while the authority is changed by hand, that of the old one follows
#     servers/<name>.pem       private key and certificate of a server in one file, as ZooKeeper reads them; mode 0600
#     clients/<name>.key       private key of a client; mode 0600
#     clients/<name>.pem       its certificate
#
# Only the programs of this package write there. Every file is made complete beside its place and then moved into it.

#: Names of servers and clients: they are names of files, too.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_SECRET: Final = 0o600
_PUBLIC: Final = 0o644
#: Certificates begin so long ago: clocks differ.
_EARLIER: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate of the directory.

    :param kind: ``authority``, ``server`` or ``client``.
    :param file: with the certificate. ``key``: with the private key; the same file for a server.
    :param hosts: names and addresses that it is for.
    :param expires: seconds since the epoch.
    :param current: signed by the present authority, or the certificate of that.
    """

    kind: str
    name: str
    file: Path
    key: Path
    hosts: Sequence[str]
    expires: float
    current: bool


class Authority:
    """Of one directory. Every method blocks for the disk, and raises CommandError or OSError."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key_file = directory / "ca.key"
        self.file = directory / "ca.pem"

    def create(self, name: str, days: int) -> None:
        """Make key and certificate of the authority. Refuses where one is."""
        if self.key_file.exists() or self.file.exists():
            text = f"{self.directory} has an authority already"
            raise CommandError(text, hint="nodepool-tls list shows its certificates")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key, certificate = _make_authority(name, days)
        app.write_file(self.key_file, _private(key), _SECRET)
        app.write_file(self.file, _pem(certificate), _PUBLIC)

    def issue(self, kind: str, name: str, hosts: Sequence[str], days: int) -> Certificate:
        """Make a key and a certificate. Refuses a name that is taken."""
        if not _NAME.fullmatch(name):
            raise CommandError(f"{name!r} cannot be a name: letters, digits, '.', '_' and '-'")
        place, key_place = self._files(kind, name)
        if place.exists() or key_place.exists():
            hint = "nodepool-tls renew makes a new one"
            raise CommandError(f"the {kind} {name} has a certificate already", hint=hint)
        issuer = self._issuer()
        place.parent.mkdir(mode=0o700, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign(issuer, kind, name, key.public_key(), _alternative([name, *hosts]), days)
        if kind == SERVER:
            app.write_file(place, _private(key) + _pem(certificate), _SECRET)
        else:
            app.write_file(key_place, _private(key), _SECRET)
            app.write_file(place, _pem(certificate), _PUBLIC)
        return self._described(kind, place, certificate, issuer[1])

    def renew(self, old: Certificate, days: int) -> Certificate:
        """A new certificate for the same key and names, by the present authority; files keep owner and mode."""
        issuer = self._issuer()
        data = old.file.read_bytes()
        loaded = _load(old.file)
        alternative = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        certificate = _sign(issuer, old.kind, old.name, loaded.public_key(), alternative, days)
        before = data[: data.index(b"-----BEGIN CERTIFICATE-----")]
        app.write_file(old.file, before + _pem(certificate), None)
        return self._described(old.kind, old.file, certificate, issuer[1])

    def certificates(self) -> list[Certificate]:
        """The authority, while it is being changed the old one, servers, clients; each kind by name."""
        authorities = _load_all(self.file)
        found = [
            self._described("authority", self.file, authority, authorities[0] if number == 0 else None)
            for number, authority in enumerate(authorities)
        ]
        for kind in (SERVER, CLIENT):
            for path in sorted((self.directory / f"{kind}s").glob("*.pem")):
                found.append(self._described(kind, path, _load(path), authorities[0]))
        return found

    # -- files --

    def _files(self, kind: str, name: str) -> tuple[Path, Path]:
        place = self.directory / f"{kind}s" / f"{name}.pem"
        return place, place if kind == SERVER else place.with_suffix(".key")

    def _issuer(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        try:
            key = serialization.load_pem_private_key(self.key_file.read_bytes(), password=None)
        except FileNotFoundError:
            raise CommandError(f"{self.directory} has no authority", hint="nodepool-tls init makes one") from None
        except (ValueError, TypeError) as error:
            raise CommandError(f"{self.key_file} cannot be read: {error}") from None
        certificate = _load_all(self.file)[0]
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise CommandError(f"{self.key_file} does not belong to the first certificate in {self.file}")
        return key, certificate

    def _described(
        self, kind: str, path: Path, certificate: x509.Certificate, authority: x509.Certificate | None
    ) -> Certificate:
        name = path.stem if kind != "authority" else certificate.subject.rfc4514_string().removeprefix("CN=")
        return Certificate(
            kind,
            name,
            path,
            self.key_file if kind == "authority" else self._files(kind, name)[1],
            list(_hosts(certificate)),
            certificate.not_valid_after_utc.timestamp(),
            authority is not None and certificate.issuer == authority.subject and _signed_by(certificate, authority),
        )


def _make_authority(name: str, days: int) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    others = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    extensions: _Extensions = (
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    )
    return key, _certificate(key, _subject(name), name, key.public_key(), days, extensions)


def _sign(
    issuer: tuple[ec.EllipticCurvePrivateKey, x509.Certificate],
    kind: str,
    name: str,
    public: object,
    alternative: x509.SubjectAlternativeName,
    days: int,
) -> x509.Certificate:
    key, authority = issuer
    assert isinstance(public, ec.EllipticCurvePublicKey)
    # Servers of an ensemble are each other's clients.
    usages = [ExtendedKeyUsageOID.SERVER_AUTH] if kind == SERVER else []
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    extensions: _Extensions = (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage([*usages, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
        (alternative, False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False),
    )
    return _certificate(key, authority.subject, name, public, days, extensions)


#: Extensions of a certificate, and whether each is critical.
_Extensions = Sequence[tuple[x509.ExtensionType, bool]]


def _certificate(
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    name: str,
    public: ec.EllipticCurvePublicKey,
    days: int,
    extensions: _Extensions,
) -> x509.Certificate:
    now = datetime.datetime.fromtimestamp(wall_time(), datetime.UTC)
    end = now + datetime.timedelta(days=days)
    serial = x509.random_serial_number()
    builder = x509.CertificateBuilder(issuer, _subject(name), public, serial, now - _EARLIER, end)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(key, hashes.SHA256())


def _subject(name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise CommandError(f"{name!r} cannot be a name: {error}") from None


def _alternative(hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not _HOST.fullmatch(host):
                raise CommandError(f"{host!r} is neither the name nor the address of a host") from None
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _hosts(certificate: x509.Certificate) -> Iterator[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    for name in names:
        yield str(name.value)


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _load(path: Path) -> x509.Certificate:
    return _load_all(path)[0]


def _load_all(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except FileNotFoundError:
        raise CommandError(f"{path.parent} has no authority", hint="nodepool-tls init makes one") from None
    except ValueError as error:
        raise CommandError(f"{path} has no certificate: {error}") from None


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


if __name__ == "__main__":
    sys.exit(main())
