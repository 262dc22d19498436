# SPDX-License-Identifier: Apache-2.0
"""What to type after an installation. Each line that begins with two blanks is a command."""

from __future__ import annotations

from typing import Final

_NEXT: Final = """\
Next, as root. If ZooKeeper has no TLS yet, make certificates (doc/source/tutorial/zookeeper.rst has all steps):
  nodepool-tls -d /root/zk-tls init
  nodepool-tls -d /root/zk-tls server zk1.example.com localhost 127.0.0.1
  nodepool-tls -d /root/zk-tls client nodepool
Put Nodepool's into place:
  install -m 0644 /root/zk-tls/clients/nodepool.pem /etc/nodepool/zk-client.pem
  install -g nodepool -m 0640 /root/zk-tls/clients/nodepool.key /etc/nodepool/zk-client.key
  install -m 0644 /root/zk-tls/ca.pem /etc/nodepool/zk-ca.pem
Edit /etc/nodepool/nodepool.yaml: servers, labels, providers. Then check it, and start the launcher
(likewise nodepool-web, which serves the web pages):
  nodepool config-validate
  runuser -u nodepool -- nodepool check
  systemctl enable --now nodepool-launcher"""

_TREE: Final = """\
What a package has to do besides: make the system user and group nodepool; give /etc/nodepool and
/etc/nodepool/nodepool.yaml to root:nodepool, /var/lib/nodepool, /var/lib/nodepool/tmp and /var/log/nodepool to
nodepool:nodepool."""


_AGAIN: Final = """\
Daemons that run keep the programs and units that they were started with. Restart them, one host after the other
(doc/source/how-to/upgrade.rst has all steps):
  systemctl try-restart nodepool-launcher nodepool-builder nodepool-web
The web pages are those of nodepool-web. Beside a launcher it needs webapp.pages-port in nodepool.yaml."""


def after(is_tree: bool, again: bool) -> str:
    """What to do next.

    :param again: there was a complete installation before.
    """
    if is_tree:
        return _TREE
    return _AGAIN if again else _NEXT
