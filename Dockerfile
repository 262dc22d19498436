# Images of the commands, one target each:
#   docker build --target nodepool-launcher --tag nodepool-launcher .
# No image has an entry point: what stands behind the image's name is a whole command, as with the images of Nodepool 11.
# tools/release builds all of them, in the format of OCI, the same bytes in each build.
# Debian 12 with a Python, 3.11 or newer.
ARG BASE=docker.io/library/python:3.12-slim-bookworm

# The virtual environment is made here, so that neither a compiler nor pip gets into the images.
FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev libffi-dev libssl-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /usr/local/lib/nodepool
WORKDIR /src
COPY requirements.txt ./
RUN /usr/local/lib/nodepool/bin/pip install --no-compile -r requirements.txt
COPY LICENSE README.rst pyproject.toml setup.cfg setup.py ./
COPY nodepool nodepool
COPY etc etc
COPY contrib contrib
# With all extras that setup.cfg has. Older releases of pip do not find one whose name has an underscore.
RUN extras=$(python3 -c "import configparser as c; p = c.ConfigParser(); p.read('setup.cfg'); print(','.join(p['options.extras_require']).replace('_', '-'))") \
    && /usr/local/lib/nodepool/bin/pip install --no-compile ".[$extras]" \
    && /usr/local/lib/nodepool/bin/pip uninstall --yes pip
# Good for any time of the source files: a build that sets all times to one makes no compiled file old.
RUN PYTHONHASHSEED=0 /usr/local/lib/nodepool/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /usr/local/lib/nodepool/lib

FROM ${BASE} AS base
# useradd notes this day, not that of the build.
ARG SOURCE_DATE_EPOCH
COPY --from=build /usr/local/lib/nodepool /usr/local/lib/nodepool
# The programs stand where those of the released images do: /usr/local/bin is also where sudo looks.
RUN groupadd --gid 10001 nodepool \
    && useradd --uid 10001 --gid nodepool --home-dir /var/lib/nodepool --create-home --shell /usr/sbin/nologin nodepool \
    && install -d -o nodepool -g nodepool /etc/nodepool /var/log/nodepool /var/run/nodepool \
    && cd /usr/local/lib/nodepool/bin \
    && for program in *; do \
        case $program in activate* | Activate* | pip* | python*) ;; *) ln -s "$PWD/$program" /usr/local/bin/ ;; esac; \
    done
ENV PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/nodepool

# The command line.
FROM base AS nodepool
CMD ["nodepool", "--help"]

# The launcher, in the foreground; DEBUG set to anything gives debug messages. "docker stop" ends it in order.
FROM base AS nodepool-launcher
EXPOSE 8005
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s CMD ["nodepool", "health", "--launcher"]
CMD ["/bin/sh", "-c", "exec nodepool-launcher -f ${DEBUG:+-d}"]

# The web pages in a process of their own, in the foreground; DEBUG set to anything gives debug messages.
FROM base AS nodepool-web
EXPOSE 8005
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s CMD ["nodepool", "health", "--web"]
CMD ["/bin/sh", "-c", "exec nodepool-web -f ${DEBUG:+-d}"]

# The builder, in the foreground; DEBUG set to anything gives debug messages. diskimage-builder mounts, and attaches loop
# devices: run it with --privileged --init and -v /dev:/dev, and keep images-dir and /var/lib/nodepool in volumes.
FROM base AS nodepool-builder
USER 0:0
# What diskimage-builder and its elements call: file systems and partitions, roots of Debian and Ubuntu (debootstrap), of
# Fedora, CentOS and Rocky (dnf), of openSUSE (zypper), of containers (podman).
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates curl debian-archive-keyring debootstrap dmsetup dnf dosfstools e2fsprogs gdisk git gnupg \
        kpartx parted podman procps qemu-utils rpm squashfs-tools sudo xfsprogs xz-utils zstd zypper \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/apt /var/log/*.log \
    && echo 'nodepool ALL=(root) NOPASSWD: ALL' >/etc/sudoers.d/nodepool-builder \
    && chmod 0440 /etc/sudoers.d/nodepool-builder \
    && install -d -o nodepool -g nodepool /opt/nodepool /var/lib/nodepool/tmp
ENV TMPDIR=/var/lib/nodepool/tmp
USER 10001:10001
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s CMD ["nodepool", "health", "--builder"]
CMD ["/bin/sh", "-c", "exec nodepool-builder -f ${DEBUG:+-d}"]
