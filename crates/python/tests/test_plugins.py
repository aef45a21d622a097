"""Envs of a plug-in are envs like the built-in ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import rollhouse
from rollhouse import replays
from rollhouse.errors import OptionsError, PluginError, UnknownEnvError

PLUGIN = Path(__file__).parents[3] / "crates" / "plugin"
ENV = "c/CartPole-v0"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    out = tmp_path_factory.mktemp("plugin") / "cartpole.so"
    flags = ["-std=c99", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-I", rollhouse.get_include()]
    subprocess.run([compiler, *flags, PLUGIN / "examples" / "cartpole.c", "-o", out], check=True)
    return out


@pytest.mark.parametrize("compiler", ["cc", "c++"])
def test_the_lines_by_which_the_page_compiles_run_as_they_stand(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    root = PLUGIN.parents[1]
    lines = (root / "docs" / "plugins.md").read_text().splitlines()
    (line,) = (line.split() for line in lines if line.startswith(f"{compiler} -"))
    made = tmp_path / line[-1]
    subprocess.run([*line[:-1], made], cwd=root, check=True)
    assert made.stat().st_size > 0


def test_the_package_carries_the_header_of_plugins() -> None:
    carried = Path(rollhouse.get_include()) / "rollhouse.h"
    assert carried.read_text() == (PLUGIN / "include" / "rollhouse.h").read_text()


def test_an_env_of_a_plugin_is_stepped_recorded_and_verified(plugin: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownEnvError, match="load_plugin"):
        rollhouse.make_vec(ENV, 2)
    assert rollhouse.load_plugin(plugin) == [ENV]
    with pytest.raises(PluginError, match="is registered already"):
        rollhouse.load_plugin(plugin, trusted=True)
    # A notebook runs its cells again.
    assert rollhouse.load_plugin(plugin) == [ENV]
    assert ENV in rollhouse.env_ids()
    assert rollhouse.env_spec(ENV)["deterministic"]

    envs = rollhouse.make_vec(ENV, 5, seed=3, record=True, data=tmp_path, bound=0.01)
    observations, _ = envs.reset()
    assert np.abs(observations).max() <= 0.01
    envs.action_space.seed(1)
    for _ in range(100):
        envs.step(envs.action_space.sample())
    envs.close()
    verified = replays.open(tmp_path).verify()
    assert verified.ok and verified.episodes > 5, verified

    with pytest.raises(OptionsError, match="must not be negative"):
        rollhouse.make_vec(ENV, 2, bound=-1.0)
    single = gymnasium.make(ENV)
    first, _ = single.reset(seed=4)
    assert first.shape == (4,)
    single.close()

    # Workers have what this process has loaded.
    envs = rollhouse.vectorize([lambda: gymnasium.make(ENV, bound=0.01)] * 2, workers=1)
    assert np.abs(envs.reset(seed=4)[0]).max() <= 0.01
    envs.close()

    # Elsewhere the recording says what is missing, and does not load what it names.
    script = f"from rollhouse import replays; print(replays.open({str(tmp_path)!r}).verify())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "unknown env" in done.stdout, done.stdout


@pytest.fixture(scope="module")
def gridworld(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = tmp_path_factory.mktemp("gridworld") / "gridworld.so"
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-I", PLUGIN / "include"]
    subprocess.run([compiler, *flags, PLUGIN / "examples" / "gridworld.cpp", "-o", library], check=True)
    return library


@pytest.mark.parametrize("copy", [True, False])
def test_a_dict_of_observations_is_a_dict_of_arrays(gridworld: Path, tmp_path: Path, copy: bool) -> None:
    library, env = gridworld, "cpp/Gridworld-v0"
    if env not in rollhouse.env_ids():
        rollhouse.load_plugin(library)
    data = tmp_path / "recorded"
    envs = rollhouse.make_vec(env, 6, seed=3, autoreset_mode="SameStep", copy=copy, record=True, data=data)
    space = envs.observation_space
    observations, _ = envs.reset()
    envs.action_space.seed(1)
    ended = 0
    for _ in range(150):
        before = {key: part.copy() for key, part in observations.items()}
        last, observations = observations, None
        observations, _, terminations, truncations, infos = envs.step(envs.action_space.sample())
        assert observations in space and list(observations) == ["position", "room"]
        # What was given before is as it was.
        assert all(np.array_equal(last[key], before[key]) for key in before)
        for lane in np.flatnonzero(terminations | truncations):
            ended += 1
            final = infos["final_obs"][lane]
            assert final in envs.single_observation_space
            if terminations[lane]:
                row, column = final["position"]
                assert final["room"][row, column] > 0
    envs.close()
    assert ended > 10
    recorded = replays.open(data)
    assert recorded.verify().ok
    for info in recorded.filter(lambda info: info.terminated):
        row, column = recorded.read(info).observations["position"][-1]
        assert info.result == ("win" if recorded.read(info).observations["room"][-1][row, column] == 2 else "lose")
    single = gymnasium.make(env)
    assert single.reset(seed=4)[0] in single.observation_space
    assert single.step(1)[0] in single.observation_space
    single.close()


def test_what_is_no_plugin_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    path.write_text("no shared object")
    with pytest.raises(PluginError, match="cannot be loaded"):
        rollhouse.load_plugin(path, trusted=True)
    with pytest.raises(PluginError, match="No such file"):
        rollhouse.load_plugin(tmp_path / "nothing.so", trusted=True)
