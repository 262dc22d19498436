# Images of the commands, one target each:
#   docker build --target nodepool-launcher --tag nodepool-launcher .
ARG PYTHON_VERSION=3.12

# Wheels are built here, so that no compiler gets into the images.
FROM python:${PYTHON_VERSION}-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev libffi-dev libssl-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements.txt ./
RUN pip wheel --no-cache-dir --wheel-dir /wheels -r requirements.txt
COPY LICENSE README.rst pyproject.toml setup.cfg setup.py ./
COPY nodepool nodepool
COPY etc etc
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON_VERSION}-slim-bookworm AS base
RUN groupadd --gid 10001 nodepool \
    && useradd --uid 10001 --gid nodepool --home-dir /var/lib/nodepool --create-home --shell /usr/sbin/nologin nodepool \
    && install -d -o nodepool -g nodepool /etc/nodepool /var/log/nodepool /var/run/nodepool
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels nodepool
ENV PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/nodepool

# The command line. Its arguments are those of "docker run".
FROM base AS nodepool
ENTRYPOINT ["nodepool"]
CMD ["--help"]

# The launcher, in the foreground; DEBUG set to anything gives debug messages. "docker stop" ends it in order.
FROM base AS nodepool-launcher
EXPOSE 8005
ENTRYPOINT ["/bin/sh", "-c", "exec nodepool-launcher -f ${DEBUG:+-d} \"$@\"", "nodepool-launcher"]

# The web pages in a process of their own, in the foreground; DEBUG set to anything gives debug messages.
FROM base AS nodepool-web
EXPOSE 8005
ENTRYPOINT ["/bin/sh", "-c", "exec nodepool-web -f ${DEBUG:+-d} \"$@\"", "nodepool-web"]

# The builder, in the foreground; DEBUG set to anything gives debug messages. diskimage-builder mounts, and attaches loop
# devices: run it with --privileged and -v /dev:/dev, and keep images-dir and /var/lib/nodepool in volumes.
FROM base AS nodepool-builder
USER 0:0
# What diskimage-builder and its elements call: file systems and partitions, roots of Debian and Ubuntu (debootstrap), of
# Fedora, CentOS and Rocky (dnf), of openSUSE (zypper), of containers (podman).
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates curl debian-archive-keyring debootstrap dmsetup dnf dosfstools e2fsprogs gdisk git gnupg \
        kpartx parted podman procps qemu-utils rpm squashfs-tools sudo xfsprogs xz-utils zstd zypper \
    && rm -rf /var/lib/apt/lists/* \
    && echo 'nodepool ALL=(root) NOPASSWD: ALL' >/etc/sudoers.d/nodepool-builder \
    && chmod 0440 /etc/sudoers.d/nodepool-builder \
    && install -d -o nodepool -g nodepool /opt/nodepool /var/lib/nodepool/tmp
ENV TMPDIR=/var/lib/nodepool/tmp
USER 10001:10001
ENTRYPOINT ["/bin/sh", "-c", "exec nodepool-builder -f ${DEBUG:+-d} \"$@\"", "nodepool-builder"]
