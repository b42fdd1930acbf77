# Training:  docker build -f containers/train.Dockerfile -t calotype-train .   (docs/containers.md)
#
# Any Debian or Ubuntu with Python 3.11 or newer and its venv can be the base. One that brings torch, such as NVIDIA's
# nvcr.io/nvidia/pytorch with its libraries for EFA, keeps its own.
ARG BASE=docker.io/library/python:3.11.13-slim-bookworm

# Wheels that are at hand; `--build-context wheels=FOLDER` puts some here, for builds without network.
FROM scratch AS wheels

FROM ${BASE} AS package
ARG PIP_NO_INDEX=
RUN python3 -m venv /opt/build
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
RUN --mount=type=bind,from=wheels,target=/wheels \
    PIP_FIND_LINKS=/wheels /opt/build/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM ${BASE} AS train
# Triton and torch.compile call a C++ compiler.
ARG PACKAGES=g++
# Their versions follow from the base, and security updates are wanted.
# hadolint ignore=DL3008
RUN if [ -n "${PACKAGES}" ]; then \
      apt-get update && apt-get install -y --no-install-recommends ${PACKAGES} && rm -rf /var/lib/apt/lists/*; \
    fi && \
    useradd --uid 10001 --user-group --home-dir /var/lib/calotype --create-home --shell /usr/sbin/nologin calotype
# What we depend on is large and changes seldom: a layer of its own, made of the two files that name it.
ARG PIP_NO_INDEX=
ARG PIP_EXTRA_INDEX_URL=
RUN --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,source=pyproject.toml,target=/src/pyproject.toml \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=bind,source=containers/requirements.py,target=/src/requirements.py \
    python3 /src/requirements.py train data > /tmp/requirements.txt && \
    cp /src/constraints.txt /tmp/constraints.txt && \
    if python3 -c "import torch" 2>/dev/null; then sed -Ei '/^(torch|triton|numpy)==/d' /tmp/constraints.txt; fi && \
    python3 -m venv --system-site-packages /opt/calotype && \
    /opt/calotype/bin/pip install --no-cache-dir --no-compile --find-links=/wheels -c /tmp/constraints.txt -r /tmp/requirements.txt && \
    rm -rf /tmp/requirements.txt /tmp/constraints.txt /opt/calotype/lib/python3*/site-packages/torch/test
# A first picture proves the image. It also has Python compile what training uses and nothing else, which no user of the
# image could keep.
RUN --mount=type=bind,from=package,source=/dist,target=/dist \
    /opt/calotype/bin/pip install --no-cache-dir --no-index --no-deps /dist/*.whl && \
    export HOME=/tmp/first && \
    /opt/calotype/bin/calotype generate "a red apple" --steps 1 --device cpu --out /tmp/first && \
    /opt/calotype/bin/python3 -c "import calotype.train.train" && \
    rm -rf /tmp/first
ENV PATH=/opt/calotype/bin:$PATH \
    CALOTYPE_MODELS=/var/lib/calotype/models
# By number: Kubernetes cannot see from a name that it is not root's.
USER 10001:10001
WORKDIR /var/lib/calotype
# A driver that the container has lost is found before the next restart fails on it.
HEALTHCHECK --interval=1m --timeout=10s CMD ["python3", "-c", "import pynvml; pynvml.nvmlInit()"]
ENTRYPOINT ["calotype"]
CMD ["train", "--help"]
