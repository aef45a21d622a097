"""What manifests of others' kinds say, for which Kubernetes has no schema: autoscaling and certificates."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import free_port, metrics, metrics_in, need, program, run, size_of, until
from test_kubernetes import of_kind, pod, variables, workloads

# Fields of the kinds that we use, by their documentation: what is not here is a slip.
SCALED_OBJECT = {
    "scaleTargetRef", "pollingInterval", "minReplicaCount", "maxReplicaCount", "fallback", "advanced", "triggers",
}
CERTIFICATE = {
    "secretName", "isCA", "commonName", "uris", "duration", "renewBefore", "usages", "privateKey", "issuerRef",
}
# What cert-manager calls a use, and openssl.
KEY_USAGES = {"digital signature": "digitalSignature", "cert sign": "keyCertSign", "crl sign": "cRLSign"}
EXTENDED = {"client auth": "clientAuth", "server auth": "serverAuth"}


def node_of(overlay: str) -> dict:
    return next(w for w in workloads(overlay) if w["metadata"]["name"] == "rollhouse-node")


def lanes_of(overlay: str) -> int:
    """Lanes that a node takes by itself: 4,096 for each core, docs/operations.md."""
    return 4096 * int(pod(node_of(overlay))["containers"][0]["resources"]["limits"]["cpu"])


def memory_of(overlay: str) -> float:
    """Bytes that a node has for lanes by itself: nine tenths of its limit, docs/cluster.md."""
    return 0.9 * size_of(pod(node_of(overlay))["containers"][0]["resources"]["limits"]["memory"])


def test_keda_scales_the_nodes_by_lanes_that_are_taken_and_that_wait_and_by_what_they_weigh() -> None:
    (scaled,) = of_kind("elastic", "ScaledObject")
    spec = scaled["spec"]
    assert set(spec) == SCALED_OBJECT and spec["scaleTargetRef"]["name"] == "rollhouse-node"
    assert spec["scaleTargetRef"]["kind"] == "StatefulSet" == node_of("elastic")["kind"]
    assert "replicas" not in node_of("elastic")["spec"], "the autoscaler's"
    assert 0 < spec["minReplicaCount"] <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
    # What a node has of each.
    has = {
        ("rollhouse_cluster_lanes", "rollhouse_cluster_waiting_lanes"): lanes_of("elastic"),
        ("rollhouse_cpu_taken_cores", "rollhouse_cluster_waiting_cpu_cores"): lanes_of("elastic") / 4096,
        ("rollhouse_memory_taken_bytes", "rollhouse_cluster_waiting_memory_bytes"): memory_of("elastic"),
    }
    assert len(spec["triggers"]) == len(has)
    for trigger, (names, room) in zip(spec["triggers"], has.items()):
        assert trigger["type"] == "prometheus" and trigger["metricType"] == "AverageValue"
        assert set(trigger["metadata"]) == {"serverAddress", "query", "threshold"}
        assert metrics_in(trigger["metadata"]["query"]) == set(names) <= metrics()
        # Another node before the others are full.
        assert room / 2 < float(trigger["metadata"]["threshold"]) < room


def test_both_autoscalers_do_the_same() -> None:
    (scaled,), (hpa,) = of_kind("elastic", "ScaledObject"), of_kind("elastic-hpa", "HorizontalPodAutoscaler")
    keda, plain = scaled["spec"], hpa["spec"]
    assert plain["scaleTargetRef"] == keda["scaleTargetRef"]
    assert (plain["minReplicas"], plain["maxReplicas"]) == (keda["minReplicaCount"], keda["maxReplicaCount"])
    assert plain["behavior"] == keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    thresholds = [trigger["metadata"]["threshold"] for trigger in keda["triggers"]]
    assert [metric["external"]["target"]["averageValue"] for metric in plain["metrics"]] == thresholds
    assert "replicas" not in node_of("elastic-hpa")["spec"]
    # The rules for its adapter, in a comment.
    text = (Path(__file__).parents[2] / "deploy/k8s/components/hpa/hpa.yaml").read_text()
    wanted = {metric["external"]["metric"]["name"] for metric in plain["metrics"]}
    queried = set().union(*(metrics_in(trigger["metadata"]["query"]) for trigger in keda["triggers"]))
    assert wanted <= metrics_in(text) and metrics_in(text) - wanted == queried


def test_the_query_of_the_autoscaler_counts_who_waits(tmp_path: Path) -> None:
    need("promtool")
    (scaled,) = of_kind("elastic", "ScaledObject")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    series = [
        {"series": 'rollhouse_cluster_lanes{namespace="rollhouse", instance="c"}', "values": "52000x10"},
        # Waits at one scrape, and has its lanes, which are counted, at the next.
        {"series": 'rollhouse_cluster_waiting_lanes{namespace="rollhouse", instance="c"}', "values": "0 0 8000 0x7"},
        {"series": 'rollhouse_cluster_waiting_lanes{namespace="another", instance="c"}', "values": "1000x10"},
    ]
    expected = [("20s", 60000), ("40s", 60000), ("60s", 52000)]
    tests = [{"expr": query, "eval_time": at, "exp_samples": [{"value": lanes, "labels": "{}"}]} for at, lanes in expected]
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps({"tests": [{"interval": "10s", "input_series": series, "promql_expr_test": tests}]}))
    assert "SUCCESS" in run("promtool", "test", "rules", path)


def certificates() -> dict[str, dict]:
    return {manifest["metadata"]["name"]: manifest["spec"] for manifest in of_kind("certificates", "Certificate")}


def test_every_pod_mounts_a_certificate_that_names_it() -> None:
    issuers = {manifest["metadata"]["name"]: manifest["spec"] for manifest in of_kind("certificates", "Issuer")}
    given = certificates()
    for name, spec in given.items():
        assert set(spec) <= CERTIFICATE, name
        assert spec["issuerRef"]["name"] in issuers and spec["issuerRef"]["kind"] == "Issuer"
    assert given["rollhouse-authority"]["secretName"] == issuers["rollhouse"]["ca"]["secretName"]
    replicas = node_of("certificates")["spec"]["replicas"]
    pods = {f"rollhouse-node-{number}" for number in range(replicas)}
    assert set(given) == {"rollhouse-authority", "rollhouse-coordinator"} | pods
    volumes = {volume["name"]: volume for volume in pod(node_of("certificates"))["volumes"]}
    files = {item["path"]: (source["secret"]["name"], item["key"])
             for source in volumes["tls"]["projected"]["sources"] for item in source["secret"]["items"]}
    for name in pods:
        container = pod(node_of("certificates"))["containers"][0]
        for key, part in [("CERT", "tls.crt"), ("KEY", "tls.key")]:
            value = variables("certificates", container)[f"ROLLHOUSE_TLS__{key}"].replace("$(POD_NAME)", name)
            assert files[value.removeprefix("/run/tls/")] == (given[name]["secretName"], part)
    assert files["ca.pem"][1] == "ca.crt"


def issued(folder: Path) -> dict[str, Path]:
    """What cert-manager would issue for the Certificates of the overlay, by openssl: folders with tls.crt, tls.key, ca.crt."""
    folders = {}
    authority = folder / "rollhouse-authority"
    for name, spec in sorted(certificates().items(), key=lambda item: not item[1].get("isCA")):
        own = folders[name] = folder / name
        own.mkdir()
        uses = [KEY_USAGES[use] for use in spec["usages"] if use in KEY_USAGES]
        extended = [EXTENDED[use] for use in spec["usages"] if use in EXTENDED]
        assert len(uses) + len(extended) == len(spec["usages"])
        lines = [f"keyUsage=critical,{','.join(uses)}"]
        lines += [f"basicConstraints=critical,CA:{'TRUE' if spec.get('isCA') else 'FALSE'}"]
        lines += [f"extendedKeyUsage={','.join(extended)}"] if extended else []
        # Nobody is named by a subject; then the other name has to be understood.
        lines += [f"subjectAltName=critical,{','.join('URI:' + uri for uri in spec['uris'])}"] if "uris" in spec else []
        (own / "extensions").write_text("\n".join(lines) + "\n")
        key = spec["privateKey"]
        assert (key["algorithm"], key["size"], key["encoding"]) == ("ECDSA", 256, "PKCS8")
        # PKCS #8 is what genpkey writes.
        run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", own / "tls.key")
        subject = f"/CN={spec['commonName']}" if "commonName" in spec else "/"
        run("openssl", "req", "-new", "-key", own / "tls.key", "-subj", subject, "-out", own / "request")
        days = str(int(spec["duration"].removesuffix("h")) // 24)
        signer = ["-signkey", own / "tls.key"] if spec.get("isCA") else [
            "-CA", authority / "tls.crt", "-CAkey", authority / "tls.key", "-CAcreateserial"]
        run("openssl", "x509", "-req", "-in", own / "request", *signer, "-days", days, "-extfile", own / "extensions",
            "-out", own / "tls.crt")
        (own / "ca.crt").write_bytes((authority / "tls.crt").read_bytes())
    return folders


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A coordinator and a node with such certificates: the connection string without its authority, and the folder."""
    need("openssl")
    folders = issued(tmp_path)
    port = free_port()
    environment = {"PATH": os.environ["PATH"]}
    services = {"coordinator": ("rollhouse-coordinator", ["--set", f"coordinator.listen=127.0.0.1:{port}"]),
                "node": ("rollhouse-node-0", ["--coordinator", f"127.0.0.1:{port}", "--set", "node.listen=127.0.0.1:0"])}
    token = ["token", "create", "--new", "--role", "trainer", "--name", "test", "--data", tmp_path / "coordinator"]
    created = run(program(), *token).strip()
    running = []
    try:
        for role, (name, words) in services.items():
            tls = folders[name]
            words += ["--data", str(tmp_path / role), "--set", "metrics.listen=127.0.0.1:0"]
            for key, file in [("ca", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key")]:
                words += ["--set", f"tls.{key}={tls / file}"]
            with open(tmp_path / f"{role}.log", "w") as log:
                running.append(subprocess.Popen([program(), role, *words], env=environment, stdout=log, stderr=log))
        yield f"rollhouse://127.0.0.1:{port}?token={created}&ca=", tmp_path
    finally:
        for process in running:
            process.terminate()
            process.wait()


def test_what_cert_manager_issues_for_them_is_believed_by_the_program(certified: tuple[str, Path]) -> None:
    connection, folder = certified
    authority = folder / "rollhouse-node-1" / "ca.crt"

    def nodes() -> list[str]:
        asked = subprocess.run([program(), "nodes", "--json", "--connect", f"{connection}{authority}"],
                               capture_output=True, text=True)
        return [json.loads(line)["node"] for line in asked.stdout.splitlines()]

    until("the node joins", lambda: nodes() == ["rollhouse-node-0"])
    rollout = ["rollout", "--env", "CartPole-v1", "--lanes", "8", "--episodes", "50", "--json"]
    report = json.loads(run(program(), *rollout, "--connect", f"{connection}{authority}"))
    assert report["episodes"] == 50 and report["stored"] is True
    # Without the authority behind the certificate, its fingerprint helps nobody: the component's head says so.
    told = run("openssl", "x509", "-in", authority, "-noout", "-fingerprint", "-sha256")
    fingerprint = "sha256:" + told.split("=")[1].strip().replace(":", "").lower()
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", fingerprint)
    refused = subprocess.run([program(), "nodes", "--connect", f"{connection}{fingerprint}"], capture_output=True, text=True)
    assert refused.returncode != 0, refused.stdout
