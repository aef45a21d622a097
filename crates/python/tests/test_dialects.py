"""Dense nets in the forms of ONNX that Unreal's plug-in, Godot RL and ML-Agents take."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import rollhouse
from local_cluster import rollhouse_program
from rollhouse.errors import PolicyError
from rollhouse.policies import dialect_file, net_file, policy_of

DIALECTS = ("unreal", "godot", "mlagents")


def _net(inputs: int, outputs: int, **more: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(inputs)

    def layer(inputs: int, outputs: int) -> np.ndarray:
        return rng.normal(0, 1, (outputs, inputs)).astype(np.float32)

    return {
        "policy.0.weight": layer(inputs, 16),
        "policy.0.bias": layer(1, 16)[:, 0],
        "policy.1.weight": layer(16, outputs),
        "policy.1.bias": layer(1, outputs)[:, 0],
        **more,
    }


CASES = {
    "CartPole-v1": _net(4, 2),
    "Acrobot-v1": _net(6, 3),
    "Pendulum-v1": _net(3, 1, log_std=np.float32([-0.5])),
    "MountainCarContinuous-v0": _net(2, 2),
}
"""Nets by envs: choices, and quantities whose deviations are beside the net or of it."""


def _likeliest(env: str, policy: object) -> tuple[np.ndarray, np.ndarray]:
    """1,000 observations, and the likeliest action of each."""
    chosen = policy_of(policy, deterministic=True)
    with rollhouse.rollouts(env, 50, policy=chosen, fragment=20, staleness=0, seed=3) as played:
        batch = played.next()
    return batch.observations[:-1].reshape(1000, -1), batch.actions.reshape(1000, -1)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("env", CASES)
def test_a_file_that_is_read_back_plays_as_the_net_that_it_was_written_of(env: str, dialect: str, tmp_path: Path):
    path = tmp_path / "net.onnx"
    path.write_bytes(dialect_file(CASES[env], dialect, env))
    observations, wanted = _likeliest(env, net_file(CASES[env]))
    again, found = _likeliest(env, path)
    # Of the first step: with the rounding of actions the lanes go apart.
    np.testing.assert_array_equal(again[:50], observations[:50])
    np.testing.assert_allclose(found[:50], wanted[:50], atol=1e-5)


@pytest.mark.adapters("onnxruntime")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("env", CASES)
def test_onnxruntime_computes_the_same_actions_of_a_thousand_observations(env: str, dialect: str):
    import onnxruntime

    observations, wanted = _likeliest(env, net_file(CASES[env]))
    session = onnxruntime.InferenceSession(dialect_file(CASES[env], dialect, env), providers=["CPUExecutionProvider"])
    obs = "obs_0" if dialect == "mlagents" else "obs"
    inputs = {port.name: port.shape for port in session.get_inputs()}
    outputs = {port.name: port.shape for port in session.get_outputs()}
    is_choice = "continuous_actions" not in outputs if dialect == "mlagents" else wanted.dtype == np.int64
    if dialect == "unreal":
        assert inputs == {"obs": [1, observations.shape[1]]} and outputs == {"actions": [1, 1]}
        rows = [session.run(["actions"], {obs: row[None]})[0][0] for row in observations]
        found = np.array(rows)
    elif dialect == "godot":
        assert inputs.keys() == {"obs", "state_ins"} and outputs.keys() == {"output", "state_outs"}
        found, state = session.run(["output", "state_outs"], {obs: observations, "state_ins": np.float32([7])})
        assert state == [7]
        found = found.argmax(1)[:, None] if is_choice else found
    else:
        kind = "discrete_actions" if is_choice else "continuous_actions"
        given = {obs: observations}
        if is_choice:
            given["action_masks"] = np.ones((1000, inputs["action_masks"][1]), np.float32)
        names = [f"deterministic_{kind}", kind, "version_number", "memory_size"]
        found, drawn, version, memory = session.run(names, given)
        assert (version, memory) == ([3], [0]) and drawn.shape == found.shape
        assert (drawn != found).any(), "what is drawn is not always the likeliest"
        if is_choice:
            given["action_masks"][:, 0] = 0
            assert all((0 not in session.run([name], given)[0]) for name in names[:2]), "a mask is heeded"
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_the_command_writes_policies_of_files_and_of_a_cluster_for_other_programs(cluster_url: str, tmp_path: Path):
    def export(*line: str) -> subprocess.CompletedProcess[str]:
        command = [str(rollhouse_program()), "policy", "export", *line]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    net = CASES["Acrobot-v1"]
    (tmp_path / "net.safetensors").write_bytes(net_file(net))
    as_godot = ["--dialect", "godot", "--env", "Acrobot-v1"]
    done = export("net.safetensors", *as_godot, "-o", "here.onnx")
    assert done.returncode == 0 and "wrote net.safetensors to here.onnx for godot" in done.stderr, done.stderr
    assert (tmp_path / "here.onnx").read_bytes() == dialect_file(net, "godot", "Acrobot-v1")
    with rollhouse.connect(cluster_url) as cluster:
        for version in range(2):
            assert cluster.put_policy("swings", {**net, "policy.1.bias": np.float32([version, 0, 0])}) == version
        done = export("swings@1", *as_godot, "--connect", cluster_url, "-o", "there.onnx")
        assert done.returncode == 0, done.stderr
        # It goes back to the cluster, and tells its version.
        assert cluster.put_policy("godot", tmp_path / "there.onnx") == 0
        with cluster.rollouts("Acrobot-v1", 2, policy="godot", fragment=4) as played:
            assert played.next().actions.shape == (4, 2)
        for name in ("swings", "godot"):
            cluster.remove_policy(name)

    def refused(line: str, words: str) -> None:
        done = export(*line.split(), "-o", "refused.onnx")
        assert done.returncode == 2 and words in done.stderr, done.stderr
        assert not (tmp_path / "refused.onnx").exists()

    refused("net.safetensors", "net.safetensors is a file already")
    refused("random --dialect godot --env Acrobot-v1", "policy random has no file")
    refused("net.safetensors --dialect unity --env Acrobot-v1", "`unity` is no dialect; there are unreal, godot and mlagents")
    refused("net.safetensors --dialect godot", "--env")
    refused("net.safetensors --dialect godot --env CartPole-v1", "the net gives 3 outputs, the env's actions need 2")


def test_what_a_dialect_has_no_place_for_is_refused():
    pixels = rollhouse.env_spec("GridBreakout-v0")["observation_space"]
    inputs = int(np.prod(pixels["shape"]))
    with pytest.raises(PolicyError, match=r"unreal takes numbers in a row, and `obs` .* has the shape .*, as a picture"):
        dialect_file(_net(inputs, 3), "unreal", "GridBreakout-v0")
    recurrent = Path(__file__).parents[2] / "policy" / "tests" / "onnx" / "cartpole_gru.onnx"
    with pytest.raises(PolicyError, match="has a state of each lane, and unreal is written of dense layers"):
        dialect_file(recurrent, "unreal", "CartPole-v1")
    with pytest.raises(PolicyError, match="'random' has no file"):
        dialect_file("random", "godot", "CartPole-v1")
    with pytest.raises(ValueError, match="`unity` is no dialect"):
        dialect_file(_net(4, 2), "unity", "CartPole-v1")
