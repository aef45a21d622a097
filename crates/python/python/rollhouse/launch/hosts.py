"""Starts nodes as processes: here, on hosts behind ssh, and as the step of a Slurm allocation."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence

from rollhouse.launch.cluster import DEFAULT_DATA, JOIN_PATIENCE, LaunchedCluster, hosting_here, launch, scratch_node
from rollhouse.launch.coordinator import own_program
from rollhouse.launch.errors import LaunchError
from rollhouse.launch.tied import PATIENCE, Tied, quoted, tied

JOINED = "joined the coordinator"
ANY_PORTS = {"node.listen": "0.0.0.0:0", "metrics.listen": ""}
"""Nodes of several launches may share a machine, and nobody scrapes what comes and goes: unless it is said otherwise."""


class Processes:
    """One process for each node, or one that starts several."""

    def __init__(self, commands: Mapping[str, tuple[list[str], Mapping[str, str]]], nodes_each: int = 1):
        self._commands, self._nodes_each = commands, nodes_each
        self._running: list[Tied] = []

    def start(self, join: str, prefix: str) -> None:
        for name, (command, environment) in self._commands.items():
            # Names are known only now; what stands for the prefix has to be in one of both.
            line = [word.replace(PREFIX, prefix) for word in command]
            variables = {key: value.replace(PREFIX, prefix) for key, value in environment.items()}
            self._running.append(Tied(name, line, variables, first=join))

    def wait(self, until: float) -> None:
        for process in self._running:
            left = max(0.0, until - time.monotonic())
            if process.hear(JOINED, self._nodes_each, left) is None:
                ended = process.poll()
                how = f"ended with exit code {ended}" if ended is not None else "has not joined in time"
                raise LaunchError(f"{process.name} {how}", process.said())

    def stop(self) -> None:
        for process in self._running:
            process.ask_to_end()
        end = time.monotonic() + PATIENCE
        codes = [(process, process.wait(max(0.1, end - time.monotonic()))) for process in self._running]
        self._running.clear()
        wrong = [(process, code) for process, code in codes if code != 0]
        if wrong:
            said = "\n".join(f"{process.name}, exit code {code}:\n{process.said()}" for process, code in wrong)
            raise LaunchError(f"{len(wrong)} did not end in order", said)

    @property
    def processes(self) -> list[Tied]:
        """The processes that were started here."""
        return list(self._running)


PREFIX = "@prefix@"


def local(
    nodes: int = 2,
    *,
    settings: Mapping[str, object] | None = None,
    data: str | os.PathLike[str] = DEFAULT_DATA,
    join: str | None = None,
    connect: str | None = None,
    program: Sequence[str] | None = None,
    timeout: float = JOIN_PATIENCE,
    name: str | None = None,
) -> LaunchedCluster:
    """Starts nodes on this machine, to try what is to run on many. They host Python envs of this interpreter, as ``rollhouse up`` does.

    Args:
        nodes: Number of nodes.
        settings: Settings of each, as ``{"node.threads": 1}``; ``config/node.toml`` shows them all.
        data: Folder of the coordinator, where recordings stay.
        join: A connection string with a join token, or a file that holds it: nodes join that cluster, and no coordinator
            is started here.
        connect: The connection string by which that cluster is reached from here, for ``make_vec``.
        program: The ``rollhouse`` command, if it is not this package's.
        timeout: Seconds in which all have joined.
        name: The beginning of their names, in place of ``launch``.

    Raises:
        LaunchError: Something did not start or join; what was started is ended then.
    """
    given = {"node.listen": "127.0.0.1:0", "metrics.listen": "", **(settings or {})}
    environment = {**hosting_here(), **scratch_node(given)}
    start = list(program or own_program())
    commands = {
        f"node {number}": (tied([*start, "node", "--name", f"{PREFIX}{number}"]), environment)
        for number in range(nodes)
    }
    return launch(lambda: Processes(commands), nodes, host="127.0.0.1", data=data, join=join, connect=connect,
                  program=program, timeout=timeout, name=name)  # fmt: skip


def ssh(
    hosts: Sequence[str],
    *,
    settings: Mapping[str, object] | None = None,
    remote_program: str = "rollhouse",
    options: Sequence[str] = (),
    host: str | None = None,
    data: str | os.PathLike[str] = DEFAULT_DATA,
    join: str | None = None,
    connect: str | None = None,
    program: Sequence[str] | None = None,
    timeout: float = JOIN_PATIENCE,
    name: str | None = None,
) -> LaunchedCluster:
    """Starts a node on each of these hosts, for as long as the ssh connections live.

    Args:
        hosts: Destinations for ``ssh``, each as often as it is to have nodes.
        remote_program: The ``rollhouse`` command there; a line of shell words.
        options: More of ssh's command line, as ``("-i", "key")``. Keys and known hosts are ssh's own affair: nothing is
            asked for.
        host: The address of this machine as the hosts reach it (UDP), if it is not the obvious one.
        settings, data, join, connect, program, timeout, name: As in ``local``.

    Raises:
        LaunchError: As ``local``.
    """
    environment = scratch_node({**ANY_PORTS, **(settings or {})})
    commands = {}
    for number, destination in enumerate(hosts):
        if destination.startswith("-"):
            raise ValueError(f"{destination!r} is not a host")
        node = [*shlex.split(remote_program), "node", "--name", f"{PREFIX}{number}"]
        line = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
        line += [*options, "--", destination, quoted(tied(node), environment)]
        commands[f"node {number} on {destination}"] = (line, dict[str, str]())
    return launch(lambda: Processes(commands), len(hosts), host=host, data=data, join=join, connect=connect,
                  program=program, timeout=timeout, name=name)  # fmt: skip


def slurm(
    nodes: int | None = None,
    *,
    cpus_per_node: int | None = None,
    settings: Mapping[str, object] | None = None,
    options: Sequence[str] = (),
    host: str | None = None,
    data: str | os.PathLike[str] = DEFAULT_DATA,
    join: str | None = None,
    connect: str | None = None,
    program: Sequence[str] | None = None,
    timeout: float = JOIN_PATIENCE,
    name: str | None = None,
) -> LaunchedCluster:
    """Starts nodes as one step of the Slurm allocation that this process runs in, a machine each.

    Before the allocation's time is over Slurm tells the step by SIGTERM (``--signal`` of sbatch says when), and the nodes
    end in order. The program has to be at the same place on all machines.

    Args:
        nodes: Number of nodes; all machines of the allocation if None.
        cpus_per_node: The value for ``--cpus-per-task`` of srun.
        options: More of srun's command line.
        settings, host, data, join, connect, program, timeout, name: As in ``ssh``.

    Raises:
        LaunchError: As ``local``; also outside of an allocation.
    """
    allocated = os.environ.get("SLURM_JOB_NUM_NODES")
    if allocated is None:
        raise LaunchError("this process is in no Slurm allocation: start it by sbatch or salloc")
    count = int(allocated) if nodes is None else nodes
    line = ["srun", "--overlap", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--export=ALL"]
    line += [] if cpus_per_node is None else [f"--cpus-per-task={cpus_per_node}"]
    # A node goes by the number of its task, which only the task knows.
    start = ["sh", "-c", 'exec "$@" --name "$0$SLURM_PROCID"', PREFIX, *(program or own_program()), "node"]
    environment = scratch_node({**ANY_PORTS, **(settings or {})})
    commands = {"srun": ([*line, *options, *tied(start)], environment)}
    return launch(lambda: Processes(commands, count), count, host=host, data=data, join=join, connect=connect,
                  program=program, timeout=timeout, name=name)  # fmt: skip
