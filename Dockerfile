# The image of Prefork: an s2i builder, and a base for a Dockerfile of one's own.
# It keeps to what the classic builder, BuildKit and buildah all understand.
ARG BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm
FROM ${BASE_IMAGE}

# Options for pip, such as `--no-index --find-links DIR` for a build without an index.
ARG PIP_OPTIONS=""

LABEL io.k8s.display-name="Prefork" \
      io.k8s.description="Serves a Python class with a predict method over REST" \
      io.openshift.s2i.scripts-url="image:///usr/libexec/s2i" \
      io.openshift.s2i.assemble-user="1001" \
      io.openshift.expose-services="9000:http" \
      io.openshift.tags="builder,python,inference"

# s2i writes shell-form commands; bash, other than Debian's sh, leaves its place to the last command, which then hears SIGTERM.
SHELL ["/bin/bash", "-c"]

# The user has no entry in /etc/passwd under OpenShift's arbitrary ids: getpass.getuser() reads USER, caches go to HOME.
ENV APP_ROOT=/opt/app-root \
    PATH=/opt/app-root/venv/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    USER=prefork \
    LOGNAME=prefork \
    XDG_CACHE_HOME=/tmp/.cache \
    HF_HOME=/tmp/huggingface \
    MPLCONFIGDIR=/tmp/matplotlib \
    NUMBA_CACHE_DIR=/tmp/numba \
    TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PREFORK_DRAIN_GRACE=5

COPY pyproject.toml README.md LICENSE /usr/src/prefork/
COPY server /usr/src/prefork/server
COPY user_model_template /usr/src/prefork/user_model_template
COPY s2i/bin /usr/libexec/s2i

# One layer, so that the change of owner does not store every file twice.
RUN python3 -m venv /opt/app-root/venv \
    && pip install --no-cache-dir ${PIP_OPTIONS} /usr/src/prefork \
    && python -m compileall -q /opt/app-root/venv \
    && mkdir -p /opt/app-root/src \
    && chown -R 1001:0 /opt/app-root \
    && chmod -R g=u /opt/app-root \
    && rm -rf /usr/src/prefork

WORKDIR /opt/app-root/src
USER 1001
EXPOSE 9000

ENTRYPOINT ["/usr/libexec/s2i/entrypoint"]
CMD ["/usr/libexec/s2i/usage"]
