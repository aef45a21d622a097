"""Steps the lanes of its own pod's node through shared memory. In place of random actions a policy chooses, and learns."""

import os

import rollhouse

cluster = rollhouse.connect(os.environ["ROLLHOUSE_CONNECT"])
labels = {"pod": os.environ["POD_NAME"]}
# One session is one batch in the node's memory; with copy=False, observations are views of it.
envs = cluster.make_vec("CartPole-v1", 1024, seed=0, labels=labels, spread="single", copy=False)
envs.reset()
print(f"steps by {envs.transport} on {envs.placements[0].node}", flush=True)
while True:
    observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
