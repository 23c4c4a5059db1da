# Weft with its examples, in a slim image without root:
#
#   docker build --tag weft .
#   docker run --rm weft make demo
#   docker run --rm --interactive --tty weft .venv/bin/python
#
# The stage `development` is that of the editor's container (.devcontainer): it has no copy of the repository.
FROM python:3.13-slim AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 weft \
    && install --directory --owner=weft --group=weft /home/weft/weft
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /home/weft/weft
USER weft

FROM base AS development
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev openssh-client \
    && rm -rf /var/lib/apt/lists/*
USER weft

FROM base AS demo
COPY --chown=weft:weft . .
# Everything that `make demo` needs, so that it runs without a network.
RUN make setup
CMD ["make", "demo"]
