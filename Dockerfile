# What `make install` makes, as an image, with the repository as it was when the image was built. Two stages are of use:
#
#   docker build --tag threespo .                          # CPU
#   docker build --tag threespo:gpu --target gpu .         # CUDA builds of torch and vLLM; the host brings the driver alone
#
# docs/containers.md says how to run them, with Docker, Podman and Apptainer.
FROM debian:bookworm-slim AS system
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates g++ git make python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/* \
    # Whoever runs the image is not whom the files belong to, and the report asks git for the commit.
 && git config --system --add safe.directory '*'
# Caches of matplotlib, Snakemake and Hugging Face, also for users who have no home in the image.
ENV PATH=/opt/venv/bin:$PATH HOME=/tmp PIP_NO_CACHE_DIR=1
WORKDIR /threespo
COPY . .
CMD ["snakemake", "--cores", "all"]

FROM system AS gpu
RUN make install VENV=/opt/venv \
 && pip install --quiet -c constraints.txt --editable '.[gpu]'

FROM system AS cpu
RUN python3 -m venv /opt/venv \
 && pip install --quiet -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
        "torch==$(sed -n 's/^torch==//p' constraints.txt)+cpu" \
 && make install VENV=/opt/venv
