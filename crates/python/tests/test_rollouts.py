"""Rollouts: batches that a policy plays, here and on a cluster, as learners take them."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
from typing import Any

import gymnasium
import numpy as np
import pytest

import rollhouse
from local_cluster import LocalCluster, rollhouse_program
from rollhouse.policies import net_file, policy_of


def _net(seed: int = 1, outputs: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    layer = lambda inputs, outputs: rng.normal(0, 0.5, (outputs, inputs)).astype(np.float32)  # noqa: E731
    return {
        "policy.0.weight": layer(4, 8),
        "policy.0.bias": layer(1, 8)[:, 0],
        "policy.1.weight": layer(8, outputs),
        "policy.1.bias": layer(1, outputs)[:, 0],
        "value.0.weight": layer(4, 1),
        "value.0.bias": layer(1, 1)[:, 0],
    }


def _logits(net: dict[str, np.ndarray], observations: np.ndarray) -> np.ndarray:
    hidden = np.tanh(observations @ net["policy.0.weight"].T + net["policy.0.bias"])
    return hidden @ net["policy.1.weight"].T + net["policy.1.bias"]


def test_a_batch_has_what_the_net_said_of_each_observation():
    net = _net()
    with rollhouse.rollouts("CartPole-v1", 16, policy=net, fragment=32, staleness=0, seed=5) as rollouts:
        for _ in range(3):
            batch = rollouts.next()
            assert batch.observations.shape == (33, 16, 4) and batch.actions.shape == (32, 16)
            logits = _logits(net, batch.observations[:-1].astype(np.float64))
            wanted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            taken = np.take_along_axis(wanted, batch.actions[..., None], -1)[..., 0]
            np.testing.assert_allclose(batch.log_probs, taken, atol=1e-5)
            values = batch.observations[:-1] @ net["value.0.weight"].T + net["value.0.bias"]
            np.testing.assert_allclose(batch.values, values[..., 0], rtol=1e-4, atol=1e-5)
            assert batch.valid.all() and (batch.versions == 0).all()


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_batch_is_what_gymnasium_steps_through_with_its_actions(mode: str):
    with rollhouse.rollouts("CartPole-v1", 4, policy=_net(), fragment=200, seed=3, autoreset_mode=mode) as rollouts:
        batch = rollouts.next()
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * 4, autoreset_mode=gymnasium.vector.AutoresetMode(mode)
    )
    observations, _ = envs.reset(seed=3)
    finals = iter(zip(batch.final_steps, batch.final_lanes, batch.final_observations, strict=True))
    was_over = np.zeros(4, bool)
    for step in range(200):
        np.testing.assert_array_equal(batch.observations[step], observations)
        observations, rewards, terminations, truncations, infos = envs.step(batch.actions[step])
        np.testing.assert_array_equal(batch.rewards[step], rewards)
        np.testing.assert_array_equal(batch.terminations[step], terminations)
        np.testing.assert_array_equal(batch.truncations[step], truncations)
        if mode == "NextStep":
            np.testing.assert_array_equal(batch.valid[step], ~was_over)
            was_over = terminations | truncations
            continue
        for lane in np.flatnonzero(terminations | truncations):
            at, of, last = next(finals)
            assert (at, of) == (step, lane)
            np.testing.assert_array_equal(last, infos["final_obs"][lane])
    assert next(finals, None) is None
    envs.close()


def test_episodes_are_those_that_ended_with_their_returns_and_lengths_over_batches():
    with rollhouse.rollouts("CartPole-v1", 8, policy="random", fragment=16, seed=2) as rollouts:
        totals, lengths, ended = np.zeros(8), np.zeros(8, int), 0
        for _ in range(10):
            batch = rollouts.next()
            told = iter(batch.episodes)
            for step in range(16):
                totals += batch.rewards[step]
                lengths += 1
                for lane in np.flatnonzero(batch.terminations[step] | batch.truncations[step]):
                    episode = next(told)
                    assert (episode.step, episode.lane) == (step, lane)
                    assert (episode.total, episode.length) == (totals[lane], lengths[lane])
                    totals[lane], lengths[lane], ended = 0, 0, ended + 1
            assert next(told, None) is None and batch.lost_episodes == 0
            assert batch.log_probs is None and batch.values is None
        assert ended > 20


def test_a_cluster_plays_what_this_process_plays_through_updates(cluster_url: str):
    here = rollhouse.rollouts("CartPole-v1", 12, policy=_net(), fragment=40, seed=9)
    with rollhouse.connect(cluster_url) as cluster, here:
        there = cluster.rollouts("CartPole-v1", 12, policy=_net(), fragment=40, seed=9)
        for update in range(4):
            one, other = here.next(), there.next()
            for name in ("observations", "actions", "rewards", "log_probs", "values", "versions", "final_observations"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=f"{name}, {update}")
            assert one.episodes == other.episodes
            assert set(np.unique(one.versions)) == {max(update - 1, 0)}
            assert here.update(_net(update + 2)) == there.update(_net(update + 2)) == update + 1
        there.close()


def test_a_node_that_is_killed_in_the_middle_changes_no_number(two_nodes: LocalCluster):
    here = rollhouse.rollouts("CartPole-v1", 12, policy=_net(), fragment=64, seed=9, staleness=2)
    with rollhouse.connect(two_nodes.url, timeout=120) as cluster, here:
        there = cluster.rollouts("CartPole-v1", 12, policy=_net(), fragment=64, seed=9, staleness=2, spread="even")
        for number in range(8):
            if number == 3:
                two_nodes.kill("one")
            one, other = here.next(), there.next(timeout=120)
            for name in ("observations", "actions", "rewards", "log_probs", "versions", "valid", "final_observations"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=f"{name}, {number}")
            here.update(_net(number + 2))
            there.update(_net(number + 2), timeout=120)
        there.close()


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_python_env_in_workers_plays_what_the_built_in_one_plays(mode: str, whole: bool):
    arguments = dict(fragment=20, seed=5, autoreset_mode=mode, complete_episodes=whole)
    with (
        rollhouse.rollouts("CartPole-v1", 4, policy=_net(), **arguments) as here,
        rollhouse.rollouts("gymnasium:CartPole-v1", 4, policy=_net(), **arguments) as workers,
    ):
        for version in range(2, 5):
            one, other = here.next(), workers.next(timeout=60)
            for name in ("observations", "actions", "rewards", "log_probs", "versions", "valid", "final_observations"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
            here.update(_net(version))
            workers.update(_net(version))


class _Failing(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        if self.steps == 7:
            raise RuntimeError("no seventh step")
        return np.full(2, self.steps / 10, np.float32), 1.0, False, False, {}


def test_a_lane_whose_python_env_raises_is_lost_from_that_row_on():
    with rollhouse.rollouts(_Failing, 2, policy="random", fragment=10, staleness=0) as rollouts:
        batch = rollouts.next(timeout=60)
    assert batch.valid.tolist() == [[True] * 2] * 6 + [[False] * 2] * 4
    assert batch.truncations[6].all() and not batch.truncations[:6].any()
    assert batch.lost_episodes == 2 and not batch.episodes


def _listed(url: str) -> list[dict[str, Any]]:
    line = [rollhouse_program(), "sessions", "--connect", url, "--json"]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    return [json.loads(session) for session in done.stdout.splitlines()]


def test_how_old_a_learners_data_is_is_counted_by_its_nodes_and_listed(two_nodes: LocalCluster):
    figures: dict[str, float] = {}
    with rollhouse.connect(two_nodes.url, timeout=120) as cluster:
        begun = cluster.rollouts("CartPole-v1", 4, policy=_net(), fragment=16, seed=1, staleness=2, spread="even")
        with begun as rollouts:
            lags = []
            for version in range(2, 8):
                lags.append(rollouts.next().lag)
                rollouts.update(_net(version))
            rollouts.next()
            # Nodes report once a second.
            while any(session["plays"] is None for session in _listed(two_nodes.url)):
                pass
            for session in _listed(two_nodes.url):
                assert session["plays"]["policy"] == "policy" and session["plays"]["version"] >= 2
        for node in ("one", "two"):
            for series, figure in two_nodes.figures(node).items():
                if series.endswith('{env="CartPole-v1",policy="policy"}'):
                    figures[series.split("{")[0]] = figures.get(series.split("{")[0], 0) + figure
    assert lags == [0, 1, 2, 2, 2, 2]
    assert figures["rollhouse_policy_data_lag_updates_count"] >= 4
    assert figures["rollhouse_policy_data_lag_updates_sum"] <= 2 * figures["rollhouse_policy_data_lag_updates_count"]
    assert figures["rollhouse_policy_publishing_seconds_count"] >= 4


def test_batches_stay_as_they_are_and_come_to_those_who_iterate_or_await():
    with rollhouse.rollouts("CartPole-v1", 4, policy="random", fragment=8, seed=1) as rollouts:
        first = rollouts.next()
        copied = first.observations.copy()

        async def three() -> list[rollhouse.Batch]:
            batches = []
            async for batch in rollouts:
                batches.append(batch)
                if len(batches) == 3:
                    return batches
            return batches

        later = [*asyncio.run(three()), next(rollouts)]
    np.testing.assert_array_equal(first.observations, copied)
    np.testing.assert_array_equal(later[0].observations[0], first.observations[-1])
    with pytest.raises(ValueError, match="read-only"):
        first.rewards[0, 0] = 3.0
    with pytest.raises(rollhouse.errors.ClosedError):
        rollouts.next()


def test_nets_of_torch_play_what_they_say():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    with rollhouse.rollouts("CartPole-v1", 8, policy=net, fragment=16, staleness=0) as rollouts:
        tensors = rollouts.next().torch()
        with torch.no_grad():
            chosen = torch.distributions.Categorical(logits=net(tensors["observations"][:-1]))
            torch.testing.assert_close(tensors["log_probs"], chosen.log_prob(tensors["actions"]), atol=1e-5, rtol=0)


def test_what_is_no_policy_is_refused_by_name():
    begin = lambda policy, **options: rollhouse.rollouts("CartPole-v1", 2, policy=policy, **options)  # noqa: E731
    for policy, message in [
        ("greedy", "unknown policy `greedy`; known are random, noop"),
        (b"nothing", "the file is none of safetensors"),
        (net_file({"policy.0.weight": np.zeros((2, 3), np.float32)}), "takes 3 inputs, the env's observations give 4"),
        (net_file({"policy.0.weight": np.zeros((3, 4), np.float32)}), "gives 3 outputs, the env's actions need 2"),
        (net_file({"policy.0.weight": np.full((2, 4), math.nan, np.float32)}), "is NaN"),
        (3, "int is no policy"),
        ({"policy.0.weight": np.zeros((2, 4), int)}, "int64"),
        (policy_of(_net(), temperature=-1.0), "temperature -1"),
    ]:
        with pytest.raises(rollhouse.errors.PolicyError, match=message):
            begin(policy)
    for options, message in [({"fragment": 0}, "steps = 0"), ({"staleness": 65}, "staleness = 65; it is from 0 to 64")]:
        with pytest.raises(ValueError, match=message):
            begin("random", **options)


def test_a_cluster_refuses_what_is_no_policy_as_this_process_does(cluster_url: str):
    with rollhouse.connect(cluster_url) as cluster:
        for policy, message in [("greedy", "there is no policy `greedy`"), (b"nothing", "none of safetensors")]:
            with pytest.raises(rollhouse.errors.PolicyError, match=message):
                cluster.rollouts("CartPole-v1", 2, policy=policy)
        rollouts = cluster.rollouts("CartPole-v1", 2, policy=_net(), fragment=8)
        with pytest.raises(rollhouse.errors.PolicyError, match="gives 3 outputs, the env's actions need 2"):
            rollouts.update(_net(outputs=3))
        assert (rollouts.next().versions == 0).all()
        rollouts.close()


def test_an_update_that_cannot_play_leaves_the_policy_before_at_work():
    with rollhouse.rollouts("CartPole-v1", 4, policy=_net(), fragment=8, staleness=0) as rollouts:
        rollouts.next()
        with pytest.raises(rollhouse.errors.PolicyError, match="outputs"):
            rollouts.update(_net(outputs=3))
        assert (rollouts.next().versions == 0).all()
        with pytest.raises(ValueError, match="version 0 after"):
            rollouts.update(_net(), version=0)
        assert rollouts.update(_net(2), version=9) == 9
        assert (rollouts.next().versions == 9).all()


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_complete_episodes_are_those_of_gymnasium_from_their_seeds_to_their_ends(mode: str):
    with rollhouse.rollouts(
        "CartPole-v1", 6, policy=_net(), fragment=16, seed=20, complete_episodes=True, autoreset_mode=mode
    ) as rollouts:
        batches = [rollouts.next() for _ in range(3)]
    env = gymnasium.make("CartPole-v1")
    for number, batch in enumerate(batches):
        lengths = batch.valid.sum(0)
        assert batch.rewards.shape[0] == lengths.max() and len(batch.episodes) == 6
        for lane in range(6):
            observation, _ = env.reset(seed=20 + 6 * number + lane)
            for step in range(lengths[lane]):
                np.testing.assert_allclose(batch.observations[step, lane], observation, atol=1e-5)
                observation, reward, terminated, truncated, _ = env.step(int(batch.actions[step, lane]))
                assert batch.rewards[step, lane] == reward and batch.terminations[step, lane] == terminated
            assert (terminated or truncated) and not batch.valid[lengths[lane] :, lane].any()
            last = batch.observations[lengths[lane], lane]
            if mode == "SameStep":
                (at,) = np.nonzero(batch.final_lanes == lane)
                last = batch.final_observations[at[0]]
            np.testing.assert_allclose(last, observation, atol=1e-5)


def test_lanes_of_a_group_begin_alike_and_play_on_by_themselves():
    arguments = dict(policy=_net(), fragment=32, seed=4, group=4, complete_episodes=True)
    with rollhouse.rollouts("CartPole-v1", 8, **arguments) as rollouts:
        first, second = rollouts.next(), rollouts.next()
    starts = np.concatenate([first.observations[0], second.observations[0]]).reshape(4, 4, 4)
    assert (starts == starts[:, :1]).all() and len(np.unique(starts[:, 0], axis=0)) == 4
    assert len(np.unique(first.actions[:, :4], axis=1).T) > 1, "what is drawn differs"
    with pytest.raises(ValueError, match="8 lanes are no whole groups of 3"):
        rollhouse.rollouts("CartPole-v1", 8, group=3)


def test_a_cluster_plays_the_same_complete_episodes(cluster_url: str):
    arguments = dict(policy=_net(), fragment=20, seed=4, group=2, complete_episodes=True, staleness=0)
    with (
        rollhouse.connect(cluster_url) as cluster,
        cluster.rollouts("CartPole-v1", 6, **arguments) as there,
        rollhouse.rollouts("CartPole-v1", 6, **arguments) as here,
    ):
        for _ in range(3):
            ours, theirs = here.next(), there.next()
            for name in ("observations", "actions", "rewards", "valid", "log_probs", "final_observations"):
                np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
            assert ours.episodes == theirs.episodes
