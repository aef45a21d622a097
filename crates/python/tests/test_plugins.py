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
    flags = ["-std=c99", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-I", PLUGIN / "include"]
    subprocess.run([compiler, *flags, PLUGIN / "examples" / "cartpole.c", "-o", out], check=True)
    return out


def test_an_env_of_a_plugin_is_stepped_recorded_and_verified(plugin: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownEnvError, match="load_plugin"):
        rollhouse.make_vec(ENV, 2)
    assert rollhouse.load_plugin(plugin) == [ENV]
    with pytest.raises(PluginError, match="is taken"):
        rollhouse.load_plugin(plugin, trusted=True)
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

    # Elsewhere the recording says what is missing, and does not load what it names.
    script = f"from rollhouse import replays; print(replays.open({str(tmp_path)!r}).verify())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "unknown env" in done.stdout, done.stdout


def test_what_is_no_plugin_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    path.write_text("no shared object")
    with pytest.raises(PluginError, match="cannot be loaded"):
        rollhouse.load_plugin(path, trusted=True)
    with pytest.raises(PluginError, match="No such file"):
        rollhouse.load_plugin(tmp_path / "nothing.so", trusted=True)
