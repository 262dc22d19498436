# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.functional.builder.confined FILE USER COMMAND...``: a command as the unit of the builder starts it.

Root calls it. The command may become root with sudo, and is confined as etc/nodepool-builder.service says: what is
read-only, and which capabilities nobody has. Nothing is changed on the machine: the rule of sudo and all else is in a
mount namespace of the command. When that has ended, what is mounted in the namespace is written to FILE. SIGTERM goes
on to the command alone.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType

UNIT = Path(__file__).parents[3] / "etc" / "nodepool-builder.service"
#: In every system, and nobody's.
USER = "nobody"
SUDOERS = Path("/etc/sudoers.d")
#: Whose content the command does not need.
HELD = Path("/mnt")
#: systemd.exec(5): what these make read-only.
READ_ONLY = {
    "ProtectSystem=full": ("/usr", "/boot", "/etc"),
    "ProtectHome=read-only": ("/home", "/root"),
    "ProtectControlGroups=yes": ("/sys/fs/cgroup",),
}
#: unshare(2), mount(2), prctl(2).
CLONE_NEWNS, MS_REC, MS_PRIVATE, PR_CAPBSET_DROP = 0x20000, 0x4000, 1 << 18, 24
#: capabilities(7), as <linux/capability.h> numbers them.
CAPABILITIES = {
    "CAP_SYS_MODULE": 16,
    "CAP_SYS_RAWIO": 17,
    "CAP_SYS_BOOT": 22,
    "CAP_SYS_TIME": 25,
    "CAP_MAC_OVERRIDE": 32,
    "CAP_MAC_ADMIN": 33,
    "CAP_SYSLOG": 34,
    "CAP_WAKE_ALARM": 35,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _own_namespace() -> None:
    """Mounts of this process and its children are their own from now on; only root may."""
    libc = _libc()
    for result in (libc.unshare(CLONE_NEWNS), libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)):
        if result != 0:
            raise OSError(ctypes.get_errno(), "there is no mount namespace of one's own")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _open(directory: Path) -> None:
    """Lets others enter a directory, such as root's home with our interpreter in it, by mounts in its place."""
    held = Path(tempfile.mkdtemp(dir=HELD))
    _mount("--bind", str(directory), str(held))
    _mount("-t", "tmpfs", "-o", "mode=755", "none", str(directory))
    for entry in held.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            place = directory / entry.name
            place.mkdir()
            _mount("--bind", str(entry), str(place))


def _open_all(paths: Iterable[str]) -> None:
    """The same for each directory on the way to these paths."""
    for path in paths:
        for directory in reversed(Path(path).resolve().parents):
            if not directory.stat().st_mode & stat.S_IXOTH:
                _open(directory)


def _confine() -> None:
    """What the unit says."""
    lines = UNIT.read_text(encoding="ascii").splitlines()
    for setting, places in READ_ONLY.items():
        if setting not in lines:
            raise ValueError(f"{UNIT} does not say {setting}")
        for place in filter(os.path.isdir, places):
            _mount("--rbind", place, place)
            _mount("-o", "remount,bind,ro", place)
    (dropped,) = [line.split("=~", 1)[1].split() for line in lines if line.startswith("CapabilityBoundingSet=~")]
    for name in dropped:
        if _libc().prctl(PR_CAPBSET_DROP, CAPABILITIES[name], 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"{name} cannot be dropped")


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code of the command; that of a signal as a shell does."""
    listing, name, *command = arguments
    _own_namespace()
    _mount("-t", "tmpfs", "-o", "mode=755", "none", str(SUDOERS))
    rule = SUDOERS / "test"
    rule.write_text(f"{USER} ALL=(root) NOPASSWD: ALL\n", encoding="ascii")
    rule.chmod(0o440)
    _mount("-t", "tmpfs", "-o", "mode=755", "none", str(HELD))
    _open_all([sys.executable, sys.prefix, *filter(os.path.exists, sys.path)])
    _confine()
    user = pwd.getpwnam(name)
    process = subprocess.Popen(command, user=user.pw_uid, group=user.pw_gid, extra_groups=[])

    def pass_on(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    code = process.wait()
    Path(listing).write_text(Path("/proc/self/mounts").read_text(encoding="utf-8"), encoding="utf-8")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
