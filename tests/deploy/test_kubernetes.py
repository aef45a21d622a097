"""Manifests: they render, Kubernetes' own schemas take them, and they say of each process what it has to have."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from conftest import DEPLOY, keys_of, need, program, run, size_of

K8S = DEPLOY / "k8s"
OVERLAYS = ["trial", "production", "monitoring", "beside", "elastic", "elastic-hpa", "certificates"]
# The oldest that knows every field, one between, and the newest that the package has.
VERSIONS = ["1.31", "1.34", "1.36"]
# Of the Prometheus operator, KEDA and cert-manager: Kubernetes has no schema for them.
FOREIGN = {"PodMonitor", "PrometheusRule", "ScaledObject", "Issuer", "Certificate"}
OLDEST_KUSTOMIZE = (5, 0)


@functools.cache
def rendered(overlay: str) -> list[dict]:
    need("kubectl")
    version = re.search(r"Kustomize Version: v(\d+)\.(\d+)", run("kubectl", "version", "--client"))
    if version is None or (int(version[1]), int(version[2])) < OLDEST_KUSTOMIZE:
        pytest.skip("kubectl has a kustomize before 5.0 (Debian 12's does)")
    return list(yaml.safe_load_all(run("kubectl", "kustomize", K8S / "overlays" / overlay)))


def of_kind(overlay: str, *kinds: str) -> list[dict]:
    return [manifest for manifest in rendered(overlay) if manifest["kind"] in kinds]


def workloads(overlay: str) -> list[dict]:
    found = of_kind(overlay, "StatefulSet", "Deployment", "Job", "DaemonSet")
    assert found
    return found


def pod(workload: dict) -> dict:
    return workload["spec"]["template"]["spec"]


def services(workload: dict) -> list[dict]:
    """Its containers but for a trainer's, which nobody dials or asks how it is."""
    found = [container for container in pod(workload)["containers"] if container["name"] != "trainer"]
    assert found and all(container["image"].startswith("rollhouse:") for container in found)
    return found


def labels(workload: dict) -> dict:
    return workload["spec"]["template"]["metadata"]["labels"]


def selects(selector: dict, of: dict) -> bool:
    # An empty one selects everything.
    return all(of.get(name) == value for name, value in selector.get("matchLabels", {}).items())


def variables(overlay: str, container: dict) -> dict[str, str]:
    """What the container's environment is, but for fields of the pod."""
    maps = {manifest["metadata"]["name"]: manifest["data"] for manifest in of_kind(overlay, "ConfigMap")}
    found = {}
    for source in container.get("envFrom", []):
        found |= maps[source["configMapRef"]["name"]]
    return found | {one["name"]: one["value"] for one in container.get("env", []) if "value" in one}


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_manifest(overlay: str, version: str) -> None:
    for manifest in rendered(overlay):
        if manifest["kind"] not in FOREIGN:
            kubernetes_validate.validate(manifest, version, strict=True)
            assert manifest["kind"] == "Namespace" or manifest["metadata"]["namespace"] == "rollhouse", manifest


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_containers_may_nothing_and_have_limits_and_probes(overlay: str) -> None:
    for workload in workloads(overlay):
        security = pod(workload)["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] == 65532
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod(workload)["automountServiceAccountToken"] is False
        # A service stops within 20 s.
        assert pod(workload)["terminationGracePeriodSeconds"] > 20
        for container in pod(workload)["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False and security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]
            image = container["image"]
            assert "@sha256:" in image or re.search(r":[^:/]+$", image) and not image.endswith(":latest"), image
        for container in services(workload):
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            for probe, path in [("startup", "/healthz"), ("readiness", "/readyz"), ("liveness", "/healthz")]:
                asked = container[f"{probe}Probe"]["httpGet"]
                assert asked["path"] == path and asked["port"] in ports


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_program_knows_every_setting(overlay: str) -> None:
    for workload in workloads(overlay):
        for container in services(workload):
            keys_of(container["args"][0], variables(overlay, container))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_kept_fits_its_volume(overlay: str) -> None:
    for workload in workloads(overlay):
        volume = size_of(workload["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"])
        role = pod(workload)["containers"][0]["args"][0]
        environment = {"PATH": os.environ["PATH"], **variables(overlay, pod(workload)["containers"][0])}
        shown = run(program(), "config", "show", "--for", role, "--json", env=environment).splitlines()
        settings = {one["key"]: one["value"] for one in map(json.loads, shown)}
        # What is kept beside recordings of the shortest episodes, by docs/operations.md.
        beside = {"store.budget": 1.7, "store.quarantine": 1.0, "spool.limit": 1.1}
        kept = sum(times * size_of(settings[key]) for key, times in beside.items() if key in settings)
        assert kept <= volume, (role, settings, volume)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_policies_let_in_every_port_and_no_other(overlay: str) -> None:
    policies = [policy["spec"] for policy in of_kind(overlay, "NetworkPolicy")]
    everybody = [policy for policy in policies if policy["podSelector"] == {} and "ingress" not in policy]
    assert any({"Ingress", "Egress"} == set(policy["policyTypes"]) and "egress" not in policy for policy in everybody)
    for workload in workloads(overlay):
        has = {(port["protocol"], port["containerPort"]) for container in services(workload)
               for port in container["ports"]}
        own = [policy for policy in policies if policy["podSelector"] and selects(policy["podSelector"], labels(workload))]
        let_in = {(port["protocol"], port["port"]) for policy in own for rule in policy.get("ingress", [])
                  for port in rule["ports"]}
        assert has == let_in, workload["metadata"]["name"]


def reaches(policies: list[dict], sender: dict, receiver: dict, port: tuple[str, int], namespaces: tuple[str, str]) -> bool:
    """Whether policies of the namespace `rollhouse` let a pod with the labels `sender` send to one with the labels
    `receiver`, each in its namespace. In other namespaces there is no policy."""

    def names(peers: list[dict], of: dict, namespace: str) -> bool:
        # A peer without a selector of namespaces is in that of the policy.
        return any(selects(peer.get("podSelector", {}), of) and ("namespaceSelector" in peer or namespace == "rollhouse")
                   and not peer.get("namespaceSelector", {}).get("matchLabels") for peer in peers)

    def lets(kind: str, side: str, of: dict, namespace: str, other: dict, elsewhere: str) -> bool:
        own = [policy for policy in policies if namespace == "rollhouse" and picks(policy["podSelector"], of)
               and kind.capitalize() in policy["policyTypes"]]
        rules = [rule for policy in own for rule in policy.get(kind, [])]
        return not own or any(
            (side not in rule or names(rule[side], other, elsewhere))
            and port in {(one["protocol"], one["port"]) for one in rule["ports"]} for rule in rules)

    return (lets("egress", "to", sender, namespaces[0], receiver, namespaces[1])
            and lets("ingress", "from", receiver, namespaces[1], sender, namespaces[0]))


def picks(selector: dict, of: dict) -> bool:
    return selects(selector, of) and all(of.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", []))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_policies_let_everybody_reach_whom_he_works_with_and_nobody_else(overlay: str) -> None:
    """Symptom: trainers in the namespace of the cluster, nodes that `rollhouse.launch` started, the archive in S3 and traces
    had no connection. Cause: a policy keeps every pod there from everything, and no other named these. Fix: there is one for
    each."""
    policies = [policy["spec"] for policy in of_kind(overlay, "NetworkPolicy")]
    coordinator, node = ({"app.kubernetes.io/name": f"rollhouse-{role}", "rollhouse-role": role} for role in ["coordinator", "node"])
    client, stranger = {"rollhouse-client": "true"}, {"app": "else"}
    launched = {"app.kubernetes.io/name": "rollhouse", "app.kubernetes.io/component": "node", "rollhouse-launch": "j"}
    to_coordinator, to_node = ("UDP", 7600), ("UDP", 7610)
    for where in ["rollhouse", "training"]:
        for other in [client, launched]:
            assert reaches(policies, other, coordinator, to_coordinator, (where, "rollhouse")), (other, where)
        assert reaches(policies, client, node, to_node, (where, "rollhouse"))
        assert reaches(policies, client, launched, to_node, (where, "rollhouse"))
        assert reaches(policies, coordinator, launched, to_node, ("rollhouse", where))
        assert not reaches(policies, stranger, coordinator, to_coordinator, (where, "rollhouse"))
        assert not reaches(policies, stranger, launched, to_node, (where, "rollhouse"))
    assert reaches(policies, node, coordinator, to_coordinator, ("rollhouse", "rollhouse"))
    # Object storage and a collector are anywhere.
    assert reaches(policies, coordinator, {}, ("TCP", 443), ("rollhouse", "outside"))
    assert not reaches(policies, node, {}, ("TCP", 443), ("rollhouse", "outside"))
    assert not reaches(policies, client, {}, ("TCP", 443), ("rollhouse", "outside"))
    for sender in [coordinator, node]:
        assert reaches(policies, sender, {}, ("TCP", 4318), ("rollhouse", "outside"))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_match_and_what_is_named_is_there(overlay: str) -> None:
    for service in of_kind(overlay, "Service"):
        spec = service["spec"]
        matched = [w for w in workloads(overlay) if spec["selector"].items() <= labels(w).items()]
        assert len(matched) == 1, service["metadata"]["name"]
        # UDP behind a virtual address outlives its pod in connection tracking.
        assert spec["clusterIP"] == "None"
        ports = {port["name"] for port in pod(matched[0])["containers"][0]["ports"]}
        assert all(port["targetPort"] in ports for port in spec["ports"])
        assert matched[0]["spec"]["serviceName"] == service["metadata"]["name"]
    for workload in workloads(overlay):
        assert selects(workload["spec"]["selector"], labels(workload))
        secrets = {volume["secret"]["secretName"] for volume in pod(workload)["volumes"] if "secret" in volume}
        # The last is the trainer's, which its user makes.
        assert secrets <= {"rollhouse-coordinator-tls", "rollhouse-node-tls", "rollhouse-trainer"}
        volumes = {volume["name"] for volume in pod(workload)["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
        for container in pod(workload)["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        for constraint in pod(workload).get("topologySpreadConstraints", []):
            assert selects(constraint["labelSelector"], labels(workload))
    for budget in of_kind(overlay, "PodDisruptionBudget"):
        assert any(selects(budget["spec"]["selector"], labels(w)) for w in workloads(overlay))
    for monitor in of_kind(overlay, "PodMonitor"):
        wanted = monitor["spec"]["selector"]["matchExpressions"][0]
        assert {labels(w)[wanted["key"]] for w in workloads(overlay)} == set(wanted["values"])


def test_nodes_dial_the_name_that_the_coordinator_has() -> None:
    node = next(w for w in workloads("trial") if w["metadata"]["name"] == "rollhouse-node")
    dialled = variables("trial", pod(node)["containers"][0])["ROLLHOUSE_NODE__COORDINATOR"]
    service = next(s for s in of_kind("trial", "Service") if s["metadata"]["name"] == "rollhouse-coordinator")
    name, port = service["metadata"]["name"], service["spec"]["ports"][0]["port"]
    assert dialled == f"{name}.rollhouse.svc:{port}"


def test_secrets_hold_a_certificate_for_each_pod(tmp_path: Path) -> None:
    need("kubectl")
    environment = dict(os.environ, ROLLHOUSE=str(program()), AUTHORITY=str(tmp_path / "ca"))
    # Where kubectl would look for a cluster, there is none.
    environment["KUBECONFIG"] = "/dev/null"
    printed = run(K8S / "secrets.sh", "3", env=environment)
    coordinator, nodes = yaml.safe_load_all(printed)
    for manifest in [coordinator, nodes]:
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)
        assert manifest["metadata"]["namespace"] == "rollhouse"
    assert set(coordinator["data"]) == {"ca.pem", "cert.pem", "key.pem"}
    pods = [f"rollhouse-node-{number}" for number in range(3)]
    assert set(nodes["data"]) == {"ca.pem"} | {f"{name}.{part}.pem" for name in pods for part in ["cert", "key"]}
    authority = (tmp_path / "ca" / "ca.key").read_bytes()
    assert run(K8S / "secrets.sh", "4", env=environment) != printed
    assert (tmp_path / "ca" / "ca.key").read_bytes() == authority, "the authority is kept"
