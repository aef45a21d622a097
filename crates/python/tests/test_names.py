"""Names that are joined: columns that would have one name are refused before anything is recorded or written."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import tallies
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from python_nodes import play, python_nodes

import rollhouse
from rollhouse import errors, replays

PART = spaces.Box(-1, 1, (2,), np.float32)
JOINED = spaces.Dict({"arm/wrist": PART, "arm": spaces.Dict({"wrist": PART})})
DOTTED = spaces.Dict({"arm.wrist": PART, "arm": spaces.Dict({"wrist": PART})})


class Still(gymnasium.Env):
    """Ends after five steps."""

    def __init__(self, observation: spaces.Space, action: spaces.Space):
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {"step_columns": 0.5}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 5, False, {"step_columns": 0.5}


def played(observation: spaces.Space, action: spaces.Space = PART, **arguments: Any) -> None:
    with rollhouse.vectorize([partial(Still, observation, action)], workers=1, **arguments) as envs:
        envs.reset(seed=1)
        for _ in range(5):
            envs.step(envs.action_space.sample())


@pytest.mark.parametrize("role", ["observation", "action"])
def test_columns_that_would_have_one_name_are_refused_before_anything_is_recorded(role: str, tmp_path: Path) -> None:
    both = (JOINED, PART) if role == "observation" else (PART, JOINED)
    played(*both)
    with pytest.raises(errors.RecordingError, match=f"the {role} has two columns called `arm/wrist`"):
        played(*both, record=True, data=tmp_path)
    assert not list(tmp_path.glob("*/segments/*.seg"))


def test_columns_that_would_have_one_name_play_on_nodes_where_nothing_is_recorded(tmp_path: Path) -> None:
    with closing(python_nodes(tmp_path, "tallies", names=("one",))) as nodes:
        for transport in ("shm", "quic"):
            with rollhouse.connect(nodes.url, transport=transport, timeout=120) as cluster:
                with closing(cluster.make_vec("tallies:Wrists", 2, record=False)) as there:
                    here = SyncVectorEnv([tallies.Wrists] * 2)
                    play(there, here, AutoresetMode.NEXT_STEP, steps=5)
                with pytest.raises(errors.RefusedError, match="the observation has two columns called `arm/wrist`"):
                    cluster.make_vec("tallies:Wrists", 2).reset(seed=1)


def test_columns_whose_names_differ_before_they_are_joined_by_dots_are_refused_by_lerobot(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    played(DOTTED, record=True, data=tmp_path / "data")
    with pytest.raises(ValueError, match=r"observation\.arm\.wrist"):
        replays.to_lerobot(tmp_path / "data", tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_an_info_that_has_the_name_of_step_columns_is_refused_by_minari(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    played(PART, record=True, data=tmp_path / "data", record_infos={"step_columns": 0.0}, step_columns={"value": "float32"})
    with pytest.raises(ValueError, match="step_columns"):
        replays.to_minari(tmp_path / "data", "names/two-v0")
