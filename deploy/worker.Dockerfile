# A worker with torch. The Linux build of torch on PyPI includes CUDA; the host needs only the NVIDIA driver and
# the NVIDIA container toolkit.
FROM python:3.12-slim

# g++: torch.compile builds its CPU kernels with it.
RUN apt-get update \
    && apt-get install --no-install-recommends --yes git ca-certificates g++ \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 tidemark \
    && install --directory --owner=tidemark --mode=0750 /data

WORKDIR /app
RUN pip install --no-cache-dir torch==2.13.0
COPY pyproject.toml README.md LICENSE THIRD_PARTY.md ./
COPY requirements requirements
COPY tidemark tidemark
COPY backend backend
COPY frontend frontend
COPY worker worker
COPY benchmarks benchmarks
COPY migrations migrations
RUN pip install --no-cache-dir --require-hashes --no-deps --requirement requirements/server.txt \
    && pip install --no-cache-dir --require-hashes --no-deps --requirement requirements/otel.txt \
    && pip install --no-cache-dir --no-deps .

USER 10001
ENV PYTHONUNBUFFERED=1
CMD ["tidemark", "worker", "--testbed", "gpu"]
