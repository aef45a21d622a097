"""What `rollhouse.launch` hands to Kubernetes and Slurm, which need more than the package's own tests have."""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import types
import uuid
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
from conftest import ROOT, keys_of, need, need_docker, program, run, until

PACKAGE = ROOT / "crates" / "python" / "python"
VERSIONS = ["1.31", "1.34", "1.36"]
JOIN = "rollhouse://coordinator.rollhouse.svc:7600?token=rh_1_2&ca=sha256:" + "0a" * 32

# The part of the package that launches, without what connects to what was launched: that needs the extension module, which is
# not built here.
ALONE = f"""
import sys, types
package = types.ModuleType("rollhouse")
package.__path__ = [{str(PACKAGE / "rollhouse")!r}]
cluster = types.ModuleType("rollhouse.cluster")
cluster.Cluster = cluster.ClusterVectorEnv = types.SimpleNamespace(make_vec=None)
cluster.connect = None
options = types.ModuleType("rollhouse.pool_options")
options.arguments_of = lambda model: lambda method: method
sys.modules.update({{module.__name__: module for module in (package, cluster, options)}})
import rollhouse.launch
"""


@pytest.fixture(autouse=True)
def not_for_other_tests() -> Iterator[None]:
    """Forgets the package without its extension module, which others would take for the one that is installed."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "rollhouse"]:
        del sys.modules[name]


def launch() -> types.ModuleType:
    exec(ALONE, {})
    return importlib.import_module("rollhouse.launch")


def test_the_manifest_of_a_job_of_nodes_is_what_kubernetes_takes_and_a_node_knows() -> None:
    rendered = launch().manifest("train-1", 3, "registry.example/rollhouse:0.1", JOIN, namespace="ml", cpus=2,
                                 settings={"node.labels": "zone=a"})  # fmt: skip
    secret, job = rendered["items"]
    for version in VERSIONS:
        for item in (secret, job):
            kubernetes_validate.validate(item, version, strict=True)
    assert base64.b64decode(secret["data"]["join"]).decode() == JOIN
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (3, 3, "Indexed")
    (container,) = pod["containers"]
    variables = {variable["name"]: variable.get("value", "") for variable in container["env"]}
    assert variables["ROLLHOUSE_NODE__NAME"] == "train-1-$(INDEX)"
    variables["ROLLHOUSE_NODE__NAME"] = "train-1-0"
    known = {name: value for name, value in variables.items() if name.startswith("ROLLHOUSE_")}
    assert known.pop("ROLLHOUSE_NODE__JOIN_FILE") == f"{container['volumeMounts'][1]['mountPath']}/join"
    keys_of("node", known)
    assert "token" not in json.dumps(job), "the Job itself carries no secret"
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["terminationGracePeriodSeconds"] > 20, "a node takes so long to end in order"


def test_kubectl_takes_the_manifest(tmp_path: Path) -> None:
    need("kubectl")
    path = tmp_path / "job.json"
    path.write_text(json.dumps(launch().manifest("train-1", 2, "image", JOIN)))
    kustomization = tmp_path / "kustomization.yaml"
    kustomization.write_text("resources: [job.json]\n")
    rendered = run("kubectl", "kustomize", tmp_path)
    assert re.findall(r"^kind: (\w+)$", rendered, re.MULTILINE) == ["Secret", "Job"]


SCRIPT = """
import subprocess
with rollhouse.launch.slurm(nodes=1, host="127.0.0.1", program=[sys.argv[1]], data="launched",
                            settings={"node.listen": "127.0.0.1:0"}) as cluster:
    line = [sys.argv[1], "rollout", "--connect", cluster.address, "--env", "CartPole-v1", "--lanes", "16"]
    subprocess.run([*line, "--episodes", "200", "--json"], check=True)
"""


def test_an_allocation_of_slurm_is_brought_up_and_taken_down_by_a_script_in_it(tmp_path: Path) -> None:
    if shutil.which("sbatch") is None or subprocess.run(["sinfo"], capture_output=True).returncode != 0:
        pytest.skip("no Slurm answers here (Debian's slurmctld and slurmd, configured and running)")
    script = tmp_path / "train.py"
    script.write_text(ALONE + SCRIPT)
    words = [sys.executable, str(script), str(program().absolute())]
    wrapped = "--wrap=exec " + " ".join(f"'{word}'" for word in words)
    submitted = run("sbatch", "--parsable", "--cpus-per-task=1", wrapped, cwd=tmp_path, env=dict(os.environ))
    number = submitted.strip().split(";")[0]

    def state() -> str:
        return run("scontrol", "show", "job", number).split("JobState=")[1].split()[0]

    until("the job ends", lambda: state() not in {"PENDING", "RUNNING", "COMPLETING"})
    said = (tmp_path / f"slurm-{number}.out").read_text()
    assert state() == "COMPLETED", said
    report = next(json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert report["episodes"] == 200 and report["stored"] is True
    stats = json.loads(run(program(), "replay", "stats", "--json", "--data", tmp_path / "launched/coordinator/store"))
    assert stats["episodes"] == 200


# It ends by itself when it is asked to, and says that it is there.
SERVES = 'trap "exit 7" TERM; echo serves >&2; while :; do sleep 1 & wait $!; done'


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    """An image of a shell and what it takes to wait, without a network."""
    need_docker()
    name, root = f"rollhouse-tied-{uuid.uuid4().hex}", tmp_path / "image"
    for tool, place in (("sh", "bin/sh"), ("sleep", "bin/sleep")):
        found = Path(shutil.which(tool)).resolve()
        libraries = [Path(path) for path in re.findall(r"(/\S*\.so\S*)", run("ldd", found))]
        for source, at in [(found, root / place), *((library, root / str(library).lstrip("/")) for library in libraries)]:
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, at)
    run("tar", "-cf", tmp_path / "image.tar", "-C", root, ".")
    run("docker", "import", tmp_path / "image.tar", name)
    yield name
    subprocess.run(["docker", "rm", "-f", name], capture_output=True)
    run("docker", "image", "rm", "-f", name)


@pytest.mark.parametrize("stop", ["nothing", "container", "container, docker and shell", "paused container"])
def test_a_container_that_was_stopped_ends_with_its_launcher(stop: str, image: str) -> None:
    launch()
    tied = importlib.import_module("rollhouse.launch.tied")
    line = ["docker", "run", "--rm", "--name", image, image, "/bin/sh", "-c", SERVES]
    held = tied.Tied("container", tied.tied(line), {})
    assert held.hear("serves", 1, 60.0) is not None, held.said()
    if stop == "paused container":
        run("docker", "pause", image)
    elif stop != "nothing":
        run("docker", "kill", "--signal", "STOP", image)
    if "shell" in stop:
        children = run("pgrep", "--parent", str(held.pid), "docker").split()
        for process in [*map(int, children), held.pid]:
            os.kill(process, signal.SIGSTOP)
    # As the kernel does when the launcher dies.
    held._process.stdin.close()
    assert held.wait(60.0) == 7, held.said()
    until("the container is gone", lambda: image not in run("docker", "ps", "--all", "--format", "{{.Names}}"))
