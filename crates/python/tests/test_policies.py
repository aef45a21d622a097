"""Policies of a cluster: stored once, and played by their names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rollhouse
from rollhouse.errors import PolicyError, RefusedError
from rollhouse.policies import net_file


ONNX = Path(__file__).parents[2] / "policy" / "tests" / "onnx"
"""Files that exporters wrote; its README says which."""


def _net(lean: float) -> dict[str, np.ndarray]:
    weights = np.array([[0, 0, -lean, -lean], [0, 0, lean, lean]], np.float32)
    return {"policy.0.weight": weights, "policy.0.bias": np.zeros(2, np.float32)}


def test_a_policy_of_a_cluster_plays_by_its_name_what_its_file_plays_here(cluster_url: str, tmp_path: Path):
    path = tmp_path / "lean.safetensors"
    path.write_bytes(net_file(_net(2.0)))
    with rollhouse.connect(cluster_url) as cluster:
        assert cluster.put_policy("lean", _net(-2.0)) == 0
        assert cluster.put_policy("lean", path) == 1
        assert cluster.put_policy("lean", _net(2.0)) == 1, "it is there"
        versions = [(policy["name"], policy["version"]) for policy in cluster.policies() if policy["name"] == "lean"]
        assert versions == [("lean", 0), ("lean", 1)]
        assert cluster.policy("lean").file == path.read_bytes() and cluster.policy("lean@0").version == 0
        with (
            cluster.rollouts("CartPole-v1", 6, policy="lean", fragment=40, seed=3) as there,
            rollhouse.rollouts("CartPole-v1", 6, policy=path, fragment=40, seed=3) as here,
        ):
            ours, theirs = here.next(), there.next()
        np.testing.assert_array_equal(ours.observations, theirs.observations)
        assert (theirs.versions == 1).all()
        good, bad = rollhouse.evaluate("CartPole-v1", ["lean@1", "lean@0"], episodes=4, cluster=cluster)
        assert good.mean > bad.mean
        assert cluster.remove_policy("lean@0") == 1 and cluster.remove_policy("lean") == 1
        with pytest.raises(PolicyError, match="there is no policy `lean`"):
            cluster.policy("lean")


def test_what_cannot_be_stored_is_refused_by_name(cluster_url: str):
    with rollhouse.connect(cluster_url) as cluster:
        with pytest.raises(PolicyError, match="'random' has no file"):
            cluster.put_policy("mine", "random")
        with pytest.raises(RefusedError, match="is no name of a policy"):
            cluster.put_policy("a/b", _net(1.0))
        with pytest.raises(RefusedError, match="`noop` is a built-in policy"):
            cluster.put_policy("noop", _net(1.0))
        with pytest.raises(RefusedError, match="neither a file of safetensors nor of ONNX"):
            cluster.put_policy("mine", b"\xff" * 100)
        with pytest.raises(ValueError, match="NAME or NAME@VERSION"):
            cluster.policy("lean@newest")
        with pytest.raises(PolicyError, match="there is no policy `lean@7`"):
            cluster.rollouts("CartPole-v1", 2, policy="lean@7")


def test_a_file_of_onnx_plays_on_a_cluster_what_it_plays_here(cluster_url: str):
    path = ONNX / "sb3_ppo.onnx"
    with rollhouse.connect(cluster_url) as cluster:
        assert cluster.put_policy("sb3", path) == 0
        arguments = dict(fragment=30, seed=5, staleness=0)
        with (
            cluster.rollouts("CartPole-v1", 6, policy="sb3", **arguments) as there,
            rollhouse.rollouts("CartPole-v1", 6, policy=path, **arguments) as here,
        ):
            ours, theirs = here.next(), there.next()
        cluster.remove_policy("sb3")
    for name in ("observations", "actions", "log_probs", "values"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)


def test_what_a_recurrent_net_remembers_of_a_lane_goes_on_between_batches_and_ends_with_its_episode():
    recurrent = dict(policy=ONNX / "cartpole_gru.onnx", staleness=0)
    with (
        rollhouse.rollouts(
            "CartPole-v1", 2, seed=0, fragment=7, complete_episodes=True, **recurrent
        ) as played,
        rollhouse.rollouts(
            "CartPole-v1", 2, seed=2, fragment=64, complete_episodes=True, **recurrent
        ) as anew,
    ):
        played.next()
        after, first = played.next(), anew.next()
    np.testing.assert_array_equal(after.observations, first.observations)
    np.testing.assert_array_equal(after.actions, first.actions)
    assert len(np.unique(after.actions)) == 2


def test_a_recurrent_net_plays_on_a_cluster_what_it_plays_here_with_its_states(
    cluster_url: str,
):
    arguments = dict(
        policy=ONNX / "cartpole_gru.onnx", fragment=20, seed=5, staleness=0
    )
    with rollhouse.connect(cluster_url) as cluster:
        with (
            cluster.rollouts("CartPole-v1", 6, **arguments) as there,
            rollhouse.rollouts("CartPole-v1", 6, **arguments) as here,
        ):
            for number in range(3):
                ours, theirs = here.next(), there.next()
                np.testing.assert_array_equal(ours.actions, theirs.actions)
                assert ours.states.keys() == theirs.states.keys() and ours.states
                for name, state in ours.states.items():
                    assert state.shape[0] == 6 and state.any() == (number > 0)
                    np.testing.assert_array_equal(state, theirs.states[name])


def test_the_cluster_keeps_every_kth_version_of_a_run_beside_it(cluster_url: str):
    with rollhouse.connect(cluster_url) as cluster:
        begun = cluster.rollouts("CartPole-v1", 2, policy=_net(1.0), fragment=4, keep="kept", keep_every=2)
        with begun as rollouts:
            for version in range(1, 6):
                rollouts.next()
                assert rollouts.update(_net(1.0 + version)) == version
        assert rollouts.kept == {0: "kept@0", 2: "kept@1", 4: "kept@2"}
        assert cluster.policy("kept@1").file == net_file(_net(3.0))
        with pytest.raises(ValueError, match="keep_every=0 is below 1"):
            cluster.rollouts("CartPole-v1", 2, policy=_net(1.0), keep="kept", keep_every=0)
        cluster.remove_policy("kept")
