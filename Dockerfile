# byrote on a CPU. `docker build -t byrote .`, then
#   docker run --rm -v "$PWD:/work" byrote demo
#   docker run --rm -v "$PWD:/work" byrote scan --model MODEL --text book.txt --sample 300 --out runs/first
# A package index with CPU builds of torch makes the image smaller: --build-arg INDEX=URL.
FROM python:3.13-slim

ARG INDEX=""
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir ${INDEX:+--extra-index-url "$INDEX"} -c constraints.txt . && rm -rf /src/build

# Runs belong to whoever owns the mounted folder: docker run --user "$(id -u):$(id -g)".
ENV HOME=/tmp HF_HOME=/work/.cache/huggingface XDG_CACHE_HOME=/work/.cache
WORKDIR /work
ENTRYPOINT ["byrote"]
CMD ["--help"]
