# syntax=docker/dockerfile:1
# manyheads from its wheel alone. docs/containers.md has the commands.
#   CPU:   docker build --file Dockerfile --tag manyheads dist
#   CUDA:  docker build --file Dockerfile --tag manyheads:cuda --build-arg TORCH= \
#            --build-arg BASE=nvidia/cuda:13.0.1-base-ubuntu24.04 dist
# BASE is a Debian or Ubuntu whose Python is 3.11 to 3.13.
ARG BASE=debian:trixie-slim
FROM ${BASE}

# The index of torch and torchvision: builds without CUDA; empty = PyPI, whose builds bring CUDA's libraries along.
ARG TORCH=https://download.pytorch.org/whl/cpu
# Optional parts: [hf,export]
ARG EXTRAS=

# Debian's versions belong to the base.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 manyheads \
    && install --directory --owner manyheads /work

SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN --mount=type=bind,target=/dist \
    python3 -m venv /opt/manyheads \
    && if [ -n "${TORCH}" ]; then /opt/manyheads/bin/pip install --no-cache-dir --index-url "${TORCH}" torch torchvision; fi \
    && /opt/manyheads/bin/pip install --no-cache-dir "$(echo /dist/manyheads-*.whl)${EXTRAS}"

ENV PATH=/opt/manyheads/bin:${PATH} \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001
WORKDIR /work
ENTRYPOINT ["manyheads"]
CMD ["--help"]
