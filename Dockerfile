# A worker of Loom. Build it from a checkout: docker build -t loom .
FROM python:3.11-slim

# The wheel is built and installed as root, and run as an ordinary user.
COPY . /src
RUN pip install --no-cache-dir /src && rm -rf /src \
    && useradd --create-home loom \
    && mkdir -p /home/loom/project && chown loom:loom /home/loom/project

USER loom
ENV PYTHONUNBUFFERED=1
# Jobs may touch files below this directory only; mount a project here.
WORKDIR /home/loom/project

CMD ["loom", "worker"]
