# A server of pictures:  docker build -f containers/serve.Dockerfile -t calotype-serve .   (docs/containers.md)
#
# Any Debian or Ubuntu with Python 3.11 or newer and its venv can be the base. CUDA comes with torch's own wheels, the
# driver from the host.
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

FROM ${BASE} AS serve
# Triton and torch.compile call a C++ compiler while they serve; a server without GPU can do without (PACKAGES=).
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
    python3 /src/requirements.py serve > /tmp/requirements.txt && \
    python3 -m venv /opt/calotype && \
    /opt/calotype/bin/pip install --no-cache-dir --no-compile --find-links=/wheels -c /src/constraints.txt -r /tmp/requirements.txt && \
    rm -r /tmp/requirements.txt /opt/calotype/lib/python3*/site-packages/torch/test
# A first picture proves the image. It also has Python compile what serving uses and nothing else, which no user of the
# image could keep.
RUN --mount=type=bind,from=package,source=/dist,target=/dist \
    /opt/calotype/bin/pip install --no-cache-dir --no-index --no-deps /dist/*.whl && \
    export HOME=/tmp/first && \
    /opt/calotype/bin/calotype generate "a red apple" --steps 1 --device cpu --out /tmp/first && \
    /opt/calotype/bin/python3 -c "import calotype.serve.lifecycle.main, calotype.serve.worker.main" && \
    rm -rf /tmp/first
ENV PATH=/opt/calotype/bin:$PATH \
    CALOTYPE_STATE=/var/lib/calotype/state \
    CALOTYPE_MODELS=/var/lib/calotype/models
# By number: Kubernetes cannot see from a name that it is not root's.
USER 10001:10001
WORKDIR /var/lib/calotype
VOLUME /var/lib/calotype
EXPOSE 8188 8189
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --retries=3 \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8188/readyz', timeout=4)"]
ENTRYPOINT ["calotype"]
# Other machines are answered only if they have a key: `keys create NAME` makes one in the volume.
CMD ["serve", "emoji", "--host", "0.0.0.0", "--port", "8188", "--grpc-port", "8189"]
