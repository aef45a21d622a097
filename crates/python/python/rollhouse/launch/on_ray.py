"""Starts nodes as actors of a Ray cluster, with its resources and placement groups."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rollhouse.launch.cluster import DEFAULT_DATA, JOIN_PATIENCE, LaunchedCluster, hosting_here, launch, scratch_node
from rollhouse.launch.coordinator import own_program
from rollhouse.launch.errors import LaunchError
from rollhouse.launch.hosts import ANY_PORTS, JOINED
from rollhouse.launch.tied import PATIENCE, Tied, tied


class NodeProcess:
    """Holds a node's process on a machine of Ray: the body of the actor. The process ends when the actor does."""

    def __init__(self, name: str, environment: dict[str, str], program: list[str] | None, join: str):
        line = tied([*(program or own_program()), "node", "--name", name])
        self._process = Tied(name, line, {**hosting_here(), **environment}, first=join)

    def wait(self, patience: float) -> tuple[bool, str]:
        """Returns whether it has joined, and its last lines."""
        return self._process.hear(JOINED, 1, patience) is not None, self._process.said()

    def stop(self) -> tuple[int | None, str]:
        """Ends it in order. Returns its exit code and its last lines."""
        self._process.ask_to_end()
        return self._process.wait(), self._process.said()

    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid


class Actors:
    """The nodes of a placement group."""

    def __init__(self, ray: Any, bundles: list[dict[str, float]], strategy: str, environment: dict[str, str],
                 program: list[str] | None):  # fmt: skip
        self._ray, self._bundles, self._strategy = ray, bundles, strategy
        self._environment, self._program = environment, program
        self._group: Any = None
        self._is_placed = False
        self.actors: list[Any] = []

    def start(self, join: str, prefix: str) -> None:
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._group = placement_group(self._bundles, strategy=self._strategy)
        kept = self._ray.remote(NodeProcess)
        for number, bundle in enumerate(self._bundles):
            place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=number)
            more = {key: value for key, value in bundle.items() if key not in ("CPU", "GPU")}
            options = {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0), "resources": more}
            # One call waits for the node while another may stop it.
            actor = kept.options(scheduling_strategy=place, max_restarts=0, max_concurrency=4, **options)
            self.actors.append(actor.remote(f"{prefix}{number}", self._environment, self._program, join))

    def wait(self, until: float) -> None:
        left = max(0.1, until - time.monotonic())
        # Its `ready` would be a task, for which there has to be a worker besides.
        if not self._group.wait(timeout_seconds=max(1, int(left))):
            raise LaunchError(f"Ray has no room for {self._bundles} within {left:.0f} s")
        self._is_placed = True
        left = max(0.1, until - time.monotonic())
        waiting = [actor.wait.remote(left) for actor in self.actors]
        try:
            results = self._ray.get(waiting, timeout=left + PATIENCE)
        except self._ray.exceptions.RayError as error:
            raise LaunchError("an actor of Ray that holds a node failed", str(error)) from error
        for number, (joined, said) in enumerate(results):
            if not joined:
                raise LaunchError(f"node {number} has not joined", said)

    def stop(self) -> None:
        wrong = []
        # One that never had a place does not answer.
        stopping = [actor.stop.remote() for actor in self.actors] if self._is_placed else []
        end = time.monotonic() + PATIENCE + 5
        for number, stopped in enumerate(stopping):
            try:
                code, said = self._ray.get(stopped, timeout=max(0.1, end - time.monotonic()))
            except self._ray.exceptions.RayError as error:
                # An actor that Ray has ended took its node with it.
                code, said = None, str(error)
            if code != 0:
                wrong.append(f"node {number}, exit code {code}:\n{said}")
        for actor in self.actors:
            self._ray.kill(actor)
        self.actors.clear()
        if self._group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self._group)
            self._group = None
        if wrong:
            raise LaunchError(f"{len(wrong)} nodes did not end in order", "\n".join(wrong))


def ray(
    nodes: int = 1,
    *,
    cpus_per_node: float = 1,
    gpus_per_node: float = 0,
    resources: Mapping[str, float] | None = None,
    strategy: str = "SPREAD",
    settings: Mapping[str, object] | None = None,
    host: str | None = None,
    data: str | os.PathLike[str] = DEFAULT_DATA,
    join: str | None = None,
    connect: str | None = None,
    program: Sequence[str] | None = None,
    timeout: float = JOIN_PATIENCE,
    name: str | None = None,
) -> LaunchedCluster:
    """Starts nodes as actors of the Ray cluster that this process is connected to (``ray.init``), or of one that is
    started here.

    Each node has a bundle of a placement group, and as many threads as CPUs there. It ends with its actor: when this process
    ends, when Ray kills the actor or the machine is taken away; its lanes go on elsewhere then. ``rollhouse`` has to be
    installed on Ray's machines, whose interpreters host Python envs.

    Args:
        nodes: Number of nodes.
        cpus_per_node, gpus_per_node, resources: What each takes of Ray's resources.
        strategy: The strategy of the placement group: ``SPREAD``, ``PACK``, ``STRICT_SPREAD`` or ``STRICT_PACK``.
        program: The ``rollhouse`` command, here and there, if it is not the package's.
        settings, host, data, join, connect, timeout, name: As in ``ssh``.

    Raises:
        LaunchError: As ``local``; also if Ray has no room in time.
    """
    try:
        import ray as library
    except ImportError as error:
        raise LaunchError("the package ray is not installed: pip install ray") from error
    if not library.is_initialized():
        library.init()
    bundle = {key: float(value) for key, value in {"CPU": cpus_per_node, "GPU": gpus_per_node}.items() if value}
    bundle.update(resources or {})
    threads = {"node.threads": max(1, int(cpus_per_node))}
    environment = scratch_node({**ANY_PORTS, **threads, **(settings or {})})
    own = host or str(library.util.get_node_ip_address())
    given = list(program) if program is not None else None
    return launch(lambda: Actors(library, [dict(bundle) for _ in range(nodes)], strategy, environment, given), nodes,
                  host=own, data=data, join=join, connect=connect, program=program, timeout=timeout,
                  name=name)  # fmt: skip
