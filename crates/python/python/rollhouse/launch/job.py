"""Starts nodes as the pods of a Kubernetes Job, which owns them."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rollhouse.launch.cluster import JOIN_PATIENCE, LaunchedCluster, settings_of
from rollhouse.launch.coordinator import Coordinator
from rollhouse.launch.errors import COMMAND_PATIENCE, LaunchError

GRACE = 30
"""Seconds that a pod has to end: a node takes up to 20."""


def manifest(
    job: str,
    nodes: int,
    image: str,
    join: str,
    *,
    prefix: str = "",
    namespace: str = "default",
    cpus: float = 1,
    memory: str = "512Mi",
    settings: Mapping[str, object] | None = None,
    lifetime: float = 86_400,
) -> dict[str, Any]:
    """Returns a Secret with the string by which the nodes join, and a Job of that many nodes, as one Kubernetes List.

    A pod that ends by itself is started again under its own name, as the same node if it still had its folder and as one
    that joins anew else: the token of ``join`` has to let it in as often. Kubernetes takes pods away by SIGTERM, which is the
    node's drain, and the whole Job after ``lifetime`` seconds whoever is left to take it down.
    """
    labels = {"app.kubernetes.io/name": "rollhouse", "app.kubernetes.io/component": "node", "rollhouse-launch": job}
    meta = {"name": job, "namespace": namespace, "labels": labels}
    own = settings_of({"node.listen": "0.0.0.0:7610", "node.data": "/var/lib/rollhouse/node", **(settings or {})})
    variables: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in own.items()]
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    # A variable may name others that stand before it.
    variables.append({"name": "INDEX", "valueFrom": index})
    variables.append({"name": "ROLLHOUSE_NODE__NAME", "value": f"{prefix or job + '-'}$(INDEX)"})
    variables.append({"name": "ROLLHOUSE_NODE__JOIN_FILE", "value": "/run/secrets/rollhouse/join"})
    limits = {"cpu": f"{cpus:g}", "memory": memory}
    container = {
        "name": "node",
        "image": image,
        "args": ["node"],
        "env": variables,
        "ports": [{"name": "quic", "containerPort": 7610, "protocol": "UDP"}, {"name": "metrics", "containerPort": 7611}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 10, "failureThreshold": 6},
        "resources": {"requests": limits, "limits": {"memory": memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/var/lib/rollhouse"},
            {"name": "join", "mountPath": "/run/secrets/rollhouse", "readOnly": True},
        ],
    }
    pod = {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": GRACE,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "data", "emptyDir": {}},
            {"name": "join", "secret": {"secretName": job, "defaultMode": 0o440}},
        ],
    }
    spec = {
        "completions": nodes,
        "parallelism": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 10 * nodes,
        "activeDeadlineSeconds": int(lifetime),
        "ttlSecondsAfterFinished": 300,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    data = {"join": base64.b64encode(join.encode()).decode()}
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data},
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec},
        ],
    }


class Job:
    """A Job of the cluster that kubectl is set up for."""

    def __init__(self, nodes: int, image: str, namespace: str, kubectl: Sequence[str], more: Mapping[str, Any]):
        self._count, self._image, self._namespace = nodes, image, namespace
        self._kubectl, self._more = list(kubectl), dict(more)
        self._job: str | None = None

    def start(self, join: str, prefix: str) -> None:
        job = prefix.rstrip("-")
        described = manifest(job, self._count, self._image, join, prefix=prefix, namespace=self._namespace, **self._more)
        self._job = job
        self._run("apply", "-f", "-", given=json.dumps(described))

    def wait(self, until: float) -> None:
        while True:
            described = json.loads(self._run("get", "job", str(self._job), "-o", "json"))
            status = described.get("status", {})
            if status.get("ready", 0) >= self._count:
                return
            if time.monotonic() >= until:
                raise LaunchError("the Job's pods are not ready in time", json.dumps(status, indent=1))
            # The API server is asked, which others use, too.
            time.sleep(1.0)

    def stop(self) -> None:
        if self._job is None:
            return
        job, self._job = self._job, None
        kinds = ["job/" + job, "secret/" + job]
        self._run("delete", *kinds, "--cascade=foreground", f"--timeout={2 * GRACE}s", "--ignore-not-found")

    def _run(self, *line: str, given: str | None = None) -> str:
        command = [*self._kubectl, "--namespace", self._namespace, *line]
        try:
            done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=COMMAND_PATIENCE)
        except subprocess.TimeoutExpired as late:
            raise LaunchError(f"`kubectl {line[0]}` did not end in {COMMAND_PATIENCE:g} s") from late
        if done.returncode != 0:
            raise LaunchError(f"`kubectl {line[0]}` failed", done.stderr.strip())
        return done.stdout


def kubernetes(
    nodes: int,
    image: str,
    *,
    join: str,
    connect: str | None = None,
    namespace: str = "default",
    cpus_per_node: float = 1,
    memory_per_node: str = "512Mi",
    settings: Mapping[str, object] | None = None,
    lifetime: float = 86_400,
    kubectl: Sequence[str] = ("kubectl",),
    timeout: float = JOIN_PATIENCE,
    name: str | None = None,
) -> LaunchedCluster:
    """Starts nodes as the pods of a Job, applied by kubectl; the Job is deleted when the cluster is closed.

    Pods dial the coordinator and are dialled at their own addresses, so that it and the trainers have to be where pods are
    reached; ``deploy/k8s`` has a coordinator for that. A launcher that is killed leaves the Job, which Kubernetes ends after
    ``lifetime`` seconds.

    Args:
        nodes: Number of nodes.
        image: An image with the ``rollhouse`` program as its entry point, as ``deploy/docker`` makes it.
        join: A connection string with a join token for so many nodes, and for their restarts.
        connect: The connection string by which the cluster is reached from here, for ``make_vec``.
        settings: As in ``local``.
        timeout: Seconds in which all pods are ready, which they are when they have joined.
        name: The beginning of the Job's name and those of the nodes, in place of ``launch``.

    Raises:
        LaunchError: kubectl failed, or pods are not ready in time; the Job is deleted then.
    """
    if nodes < 1:
        raise ValueError(f"nodes={nodes}, at least 1 is wanted")
    more = {"cpus": cpus_per_node, "memory": memory_per_node, "settings": settings, "lifetime": lifetime}
    coordinator = Coordinator("", "", [], join=join, connect=connect)
    return LaunchedCluster(Job(nodes, image, namespace, kubectl, more), nodes, coordinator, timeout, name)
