# Prometheus from Debian's package with our rules, for machines without a registry; built by build.sh. Elsewhere, the
# official image with deploy/prometheus mounted at /etc/prometheus does the same.
ARG BUILDER=rollhouse-needs-the-argument-builder
ARG BASE=rollhouse-needs-the-argument-base

# A new volume takes its owner from the folder in the image, and the stage below has no program that makes one.
FROM ${BUILDER} AS folder
RUN mkdir -p /out/prometheus && chown 65534:65534 /out/prometheus

FROM ${BASE}
LABEL org.opencontainers.image.title="rollhouse-prometheus" \
      org.opencontainers.image.description="Prometheus of Debian with Rollhouse's rules"
COPY --from=folder /out/ /
COPY prometheus.yml rules.yml /etc/prometheus/
# As in the official image.
USER 65534:65534
WORKDIR /prometheus
EXPOSE 9090/tcp
ENTRYPOINT ["/usr/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus", "--storage.tsdb.retention.time=15d"]
