# What `make install` makes, as an image, with the files of this folder. docs/containers.md says how to run it.
#
#   docker build --tag threespo .                          # CPU build of torch
#   docker build --tag threespo:gpu --target gpu .         # CUDA builds of torch and vLLM; the host brings the driver alone
#
# Needs BuildKit (Docker 23 or later), Podman or Buildah: older builders would make the stage `gpu` on the way to `cpu`.
FROM debian:bookworm-slim AS system
# python3-dev: on GPUs Triton compiles code that includes Python's headers.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates g++ git make python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/* \
    # Whoever runs the image need not own the files, and results name the commit, which git tells.
 && git config --system --add safe.directory '*'
# For users whom the image does not know (`--user`): a place for caches, and a name, for which Snakemake asks.
ENV PATH=/opt/venv/bin:$PATH HOME=/tmp USER=threespo LOGNAME=threespo PIP_NO_CACHE_DIR=1
WORKDIR /threespo
# Only what installation reads: another commit is a new image without installing again. The installation is editable, so
# that it finds the package in this folder, or in a clone that is mounted over it.
COPY Makefile pyproject.toml constraints.txt README.md LICENSE ./
COPY threespo/__init__.py threespo/
COPY threespo_verifiers/__init__.py threespo_verifiers/
CMD ["snakemake", "--cores", "all"]

FROM system AS gpu
RUN make install VENV=/opt/venv \
 && pip install --quiet -c constraints.txt --editable '.[gpu]'
COPY . .

FROM system AS cpu
RUN python3 -m venv /opt/venv \
 && pip install --quiet -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
        "torch==$(sed -n 's/^torch==//p' constraints.txt)+cpu" \
 && make install VENV=/opt/venv
COPY . .
