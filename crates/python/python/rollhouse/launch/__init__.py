"""Brings the nodes of a cluster up on what people already run, and takes them down again.

``local`` (this machine, to try it), ``ssh`` (hosts), ``slurm`` (inside an allocation), ``kubernetes`` (a Job) and ``ray``
(actors of a Ray cluster) each give a ``LaunchedCluster``::

    with rollhouse.launch.ray(nodes=2, cpus_per_node=1) as cluster:
        envs = cluster.make_vec("CartPole-v1", num_envs=1024)

By default its coordinator runs here, in the folder ``rollhouse-launch``, where recordings stay. With ``join=``, a
connection string with a join token, nodes join a coordinator that runs elsewhere, and ``connect=`` is how it is reached
from here. Nodes are ordinary nodes of that cluster: the same certificates, metrics and drain. They end in order when the
launcher tells them to (SIGTERM), and when the process that launched them is gone, however that ended.

Start reading at ``LaunchedCluster``, then at ``Coordinator``. Not a goal: installing Rollhouse on hosts, and scaling by
itself.
"""

from __future__ import annotations

from rollhouse.launch.cluster import LaunchedCluster
from rollhouse.launch.errors import LaunchError
from rollhouse.launch.hosts import local, slurm, ssh
from rollhouse.launch.job import kubernetes, manifest
from rollhouse.launch.on_ray import ray

__all__ = ["LaunchError", "LaunchedCluster", "kubernetes", "local", "manifest", "ray", "slurm", "ssh"]
