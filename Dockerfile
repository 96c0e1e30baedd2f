# TaskHarbor with its drivers for servers. As it is, it runs the handlers echo, sleep and fail; for your own tasks:
#
#     FROM taskharbor
#     COPY --chown=harbor tasks.py /app/
#     CMD ["worker", "run", "--app", "tasks:harbor", "--health-file", "/run/taskharbor/health.json"]
#
# The store is TASKHARBOR_DSN. No init is needed: the supervisor is fit to be process 1.

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --wheel-dir /wheels ".[postgres,redis,prometheus,opentelemetry]"

FROM python:3.13-slim
# The versions are those of the wheels that the first stage made.
# hadolint ignore=DL3013
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "taskharbor[postgres,redis,prometheus,opentelemetry]"
RUN useradd --system --uid 10001 --create-home --home-dir /app harbor \
    && install --directory --owner harbor --group harbor /run/taskharbor
WORKDIR /app
# By number: Kubernetes cannot tell from a name that it is not root.
USER 10001
ENV PYTHONUNBUFFERED=1
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=30s --retries=3 \
    CMD ["taskharbor", "worker", "health", "--file", "/run/taskharbor/health.json"]
ENTRYPOINT ["taskharbor"]
CMD ["worker", "run", "--log-format", "json", "--health-file", "/run/taskharbor/health.json"]
