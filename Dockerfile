# hippocube's server and worker: `docker build -t hippocube .`. CI does not build it; what it installs CI tests, and
# `make image-check` executes it without Docker (docs/reference/containers.md).
FROM python:3.11-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml constraints.txt constraints-hashes.txt hatch_build.py README.md LICENSE NOTICE ./
COPY memos memos
# uv takes no file whose digest is not in constraints-hashes.txt. Modules are compiled here, since a read-only root file
# system keeps nothing: each start would compile them again.
RUN python -m venv /opt/hippocube \
    && python -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir --constraint constraints.txt uv \
    && /opt/uv/bin/uv pip install --no-cache --compile-bytecode --python /opt/hippocube/bin/python \
        --constraint constraints.txt --constraint constraints-hashes.txt '.[mcp,servers,documents,tracing]'

FROM python:3.11-slim-bookworm
RUN groupadd --system --gid 10001 hippocube \
    && useradd --system --uid 10001 --gid 10001 --create-home --home-dir /var/lib/hippocube hippocube
COPY --from=build /opt/hippocube /opt/hippocube
ENV PATH=/opt/hippocube/bin:$PATH PYTHONUNBUFFERED=1 MEMOS_HOME=/var/lib/hippocube/data MEMOS_SERVER__HOST=0.0.0.0
# As numbers, so that Kubernetes can tell that this is not root.
USER 10001:10001
VOLUME /var/lib/hippocube
EXPOSE 8765
STOPSIGNAL SIGTERM
# The image has no curl.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=6 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/ready', timeout=4)"]
ENTRYPOINT ["memos"]
CMD ["serve"]
