#!/bin/sh
# Makes the secrets that compose.yaml mounts, in deploy/docker/secrets: an authority, a certificate for the coordinator and
# for each node, a password for Grafana, and a trainer's connection string, whose token the coordinator's volume knows.
#
#     deploy/docker/prepare.sh                   what is missing
#     deploy/docker/prepare.sh node-3            the same, and a certificate for a further node
#     RENEW=1 deploy/docker/prepare.sh node-1    a new certificate; the running node takes it
set -eu

cd "$(dirname "$0")"
image=${ROLLHOUSE_IMAGE:-rollhouse:local}
# Docker's plugin, or the package docker-compose of Debian 12.
compose=${COMPOSE:-}
if [ -z "$compose" ]; then
    if docker compose version >/dev/null 2>&1; then
        compose='docker compose'
    elif docker-compose version >/dev/null 2>&1; then
        compose=docker-compose
    else
        echo "error: there is neither \`docker compose\` nor docker-compose here: Debian's package docker-compose has the latter" >&2
        exit 1
    fi
fi

# Containers run as a user of their own, who has to read their keys; on this machine nobody gets past the folder above.
umask 022
mkdir -p secrets
chmod 0700 secrets
mkdir -p secrets/tls

rollhouse() {
    docker run --rm --network none --user "$(id -u):$(id -g)" --volume "$PWD/secrets:/secrets" "$image" "$@"
}

[ -e secrets/ca/ca.key ] || rollhouse certs init --dir /secrets/ca
for name in coordinator node-1 node-2 "$@"; do
    role=node
    [ "$name" = coordinator ] && role=coordinator
    wanted=
    for asked in "$@"; do
        [ "$asked" = "$name" ] && wanted=${RENEW:-}
    done
    if [ ! -e "secrets/tls/$name/cert.pem" ] || [ -n "$wanted" ]; then
        rollhouse certs issue --dir /secrets/ca --role "$role" --name "$name" --output "/secrets/tls/$name"
        # Kept when the files are replaced.
        chmod 0755 "secrets/tls/$name"
        chmod 0644 "secrets/tls/$name"/*.pem
    fi
done

if [ ! -e secrets/grafana-password ]; then
    head -c 18 /dev/urandom | base64 >secrets/grafana-password
    chmod 0644 secrets/grafana-password
fi

if [ ! -e secrets/connection ]; then
    # The coordinator need not run, nor be stopped.
    token=$($compose run --rm --no-deps -T coordinator token create --new --role trainer --name trainer \
        --data /var/lib/rollhouse/coordinator)
    echo "rollhouse://coordinator:7600?token=$token&ca=$(rollhouse certs fingerprint /secrets/ca)" >secrets/connection
    chmod 0644 secrets/connection
fi
echo "secrets are in $PWD/secrets"
