#!/bin/sh
# Prints the secrets of a cluster as manifests: the coordinator's certificate, and one for each of so many nodes.
#
#     deploy/k8s/secrets.sh 8 | kubectl apply -f -
#
# The authority is made in ./rollhouse-ca (or $AUTHORITY) at the first run; keep it, and put it nowhere else. Run again,
# also for more nodes, it issues new certificates: apply them, and running pods take them, a minute or two later. Needs
# `rollhouse` (or $ROLLHOUSE) and kubectl, and no cluster.
set -eu

nodes=${1:?"usage: secrets.sh NUMBER-OF-NODES"}
authority=${AUTHORITY:-./rollhouse-ca}
rollhouse=${ROLLHOUSE:-rollhouse}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ -e "$authority/ca.key" ] || "$rollhouse" certs init --dir "$authority" >&2
issue() {
    "$rollhouse" certs issue --dir "$authority" --role "$1" --name "$2" --output "$work/$2" >&2
}

issue coordinator rollhouse-coordinator
kubectl create secret generic rollhouse-coordinator-tls --namespace rollhouse --dry-run=client --output yaml \
    --from-file="$work/rollhouse-coordinator/ca.pem" --from-file="$work/rollhouse-coordinator/cert.pem" \
    --from-file="$work/rollhouse-coordinator/key.pem"
echo ---
set -- --from-file="$work/rollhouse-coordinator/ca.pem"
number=0
while [ "$number" -lt "$nodes" ]; do
    # A StatefulSet names its pods so.
    name=rollhouse-node-$number
    issue node "$name"
    set -- "$@" --from-file="$name.cert.pem=$work/$name/cert.pem" --from-file="$name.key.pem=$work/$name/key.pem"
    number=$((number + 1))
done
kubectl create secret generic rollhouse-node-tls --namespace rollhouse --dry-run=client --output yaml "$@"
