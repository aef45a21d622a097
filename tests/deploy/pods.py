"""Pods without Kubernetes: what a kubelet would hand to the engine, by a rendered overlay."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import yaml
from conftest import DEPLOY, get, program, run, size_of, until
from test_kubernetes import of_kind, pod, rendered, services, variables, workloads


class Pods:
    """The first pod of each workload, in a network of its own: users, rights, environment, volumes, probes."""

    def __init__(self, overlay: str, name: str, images: dict[str, str], folder: Path) -> None:
        # `images` says for each name without a tag what runs in its place.
        self.overlay, self.name, self.images, self.folder = overlay, name, images, folder
        rendered(overlay)
        self.authority = folder / "ca"
        environment = dict(os.environ, ROLLHOUSE=str(program()), AUTHORITY=str(self.authority), KUBECONFIG="/dev/null")
        printed = run(DEPLOY / "k8s" / "secrets.sh", "1", env=environment)
        self.secrets = {manifest["metadata"]["name"]: manifest["data"] for manifest in yaml.safe_load_all(printed)}
        self.started: dict[str, str] = {}
        self.volumes: list[str] = []
        run("docker", "network", "create", name)

    def remove(self) -> None:
        for container in reversed(self.started.values()):
            run("docker", "rm", "--force", "--volumes", container)
        for volume in self.volumes:
            run("docker", "volume", "rm", volume)
        run("docker", "network", "rm", self.name)

    def start(self, workload: str) -> None:
        """Starts the workload's pod and waits until it is ready."""
        wanted = next(w for w in workloads(self.overlay) if w["metadata"]["name"] == workload)
        network = ["--network", self.name]
        # The name of a headless Service.
        network += ["--network-alias", f"{wanted['spec']['serviceName']}.rollhouse.svc"]
        for container in pod(wanted)["containers"]:
            name = f"{workload}-0"
            line = ["docker", "run", "--detach", "--name", f"{self.name}-{name}-{container['name']}", *network]
            line += self.options(wanted, container, name)
            command = container.get("command", [])
            line += ["--entrypoint", command[0]] if command else []
            image = self.images[container["image"].split(":")[0]]
            words = [*command[1:], *container.get("args", [])]
            self.started[container["name"]] = run(*line, image, *words).strip()
            # All containers of a pod have one network.
            network = ["--network", f"container:{self.started[container['name']]}"]
            if container in services(wanted):
                self.probe(container)

    def options(self, workload: dict, container: dict, name: str) -> list[str]:
        outer, inner = pod(workload)["securityContext"], container["securityContext"]
        line = ["--user", f"{outer['runAsUser']}:{outer['runAsGroup']}", "--group-add", str(outer["fsGroup"])]
        line += ["--cap-drop", *inner["capabilities"]["drop"]]
        line += ["--read-only"] if inner["readOnlyRootFilesystem"] else []
        line += [] if inner["allowPrivilegeEscalation"] else ["--security-opt", "no-new-privileges:true"]
        memory = int(size_of(container["resources"]["limits"]["memory"]))
        line += ["--memory", str(memory), "--memory-swap", str(memory)]
        values = variables(self.overlay, container)
        fields = {one["name"] for one in container.get("env", []) if "valueFrom" in one}
        assert fields <= {"POD_NAME"}
        for key, value in {**dict.fromkeys(fields, name), **values}.items():
            line += ["--env", f"{key}={value.replace('$(POD_NAME)', name)}"]
        volumes = {volume["name"]: volume for volume in pod(workload)["volumes"]}
        for mount in container["volumeMounts"]:
            source = self.source(volumes.get(mount["name"]), f"{name}-{mount['name']}", outer["fsGroup"])
            line += ["--volume", f"{source}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"]
        return line

    def source(self, volume: dict | None, name: str, group: int) -> str:
        """What is mounted, as a kubelet makes it."""
        if volume is not None and "emptyDir" in volume:
            assert volume["emptyDir"]["medium"] == "Memory"
            made = f"{self.name}-{name}"
            if made not in self.volumes:
                # Everybody may write to it, and files get the group of fsGroup.
                size = int(size_of(volume["emptyDir"]["sizeLimit"]))
                run("docker", "volume", "create", "--opt", "type=tmpfs", "--opt", "device=tmpfs",
                    "--opt", f"o=size={size},mode=2777,gid={group}", made)
                self.volumes.append(made)
            return made
        folder = self.folder / name
        if volume is None:
            # A fresh volume of a claim: root's, and the group's by fsGroup.
            folder.mkdir()
            given(folder, group, 0o2775, 0o777)
            return str(folder)
        if not folder.exists():
            folder.mkdir(mode=0o755)
            for file, data in self.files(volume).items():
                path = folder / file
                path.write_bytes(data)
                given(path, group, volume.get("secret", {}).get("defaultMode", 0o644), 0o444)
        return str(folder)

    def files(self, volume: dict) -> dict[str, bytes]:
        if "configMap" in volume:
            maps = {manifest["metadata"]["name"]: manifest["data"] for manifest in of_kind(self.overlay, "ConfigMap")}
            return {file: data.encode() for file, data in maps[volume["configMap"]["name"]].items()}
        secret = self.secrets[volume["secret"]["secretName"]]
        return {file: base64.b64decode(data) for file, data in secret.items()}

    def give_token(self) -> None:
        """Makes the secret of a trainer, as the overlay's head says."""
        line = ["docker", "exec", self.started["coordinator"], "rollhouse", "token", "create"]
        token = run(*line, "--role", "trainer", "--name", "trainer").strip()
        fingerprint = run(program(), "certs", "fingerprint", self.authority).strip()
        connection = f"rollhouse://rollhouse-coordinator.rollhouse.svc:7600?token={token}&ca={fingerprint}"
        self.secrets["rollhouse-trainer"] = {"connection": base64.b64encode(connection.encode()).decode()}

    def probe(self, container: dict) -> None:
        """Asks what a kubelet asks, from the machine, until the container is ready."""
        started = self.started[container["name"]]
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        address = run("docker", "inspect", "--format", form, started).strip()
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"]:
            asked = container[probe]["httpGet"]
            url = f"http://{address}:{ports[asked['port']]}{asked['path']}"
            try:
                until(url, lambda url=url: get(url)[0] == 200)
            except AssertionError as error:
                said = subprocess.run(["docker", "logs", started], capture_output=True, text=True).stderr
                raise AssertionError(f"{url}: {get(url)}\n{said}") from error


def given(path: Path, group: int, mode: int, otherwise: int) -> None:
    """Gives a file to the group with that mode; who is not root cannot, and then everybody has another one."""
    if os.getuid() == 0:
        os.chown(path, 0, group)
    path.chmod(mode if os.getuid() == 0 else otherwise)
