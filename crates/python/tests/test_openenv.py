"""`openenv` as it comes from PyPI: its client plays our envs through the gate, and its validators find what they want."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openenv.validation", reason="openenv 0.10 is not installed")

from gate_program import gate, program  # noqa: E402
from openenv.cli._validation import validate_running_environment  # noqa: E402
from openenv.core import GenericEnvClient  # noqa: E402
from openenv.validation.graders.runtime import (  # noqa: E402
    ObservationSchemaGrader,
    RewardWellFormedGrader,
    StateContractGrader,
)
from openenv.validation.manifest import RewardDeclaration  # noqa: E402
from openenv.validation.runtime.collector import collect_runtime_evidence  # noqa: E402
from openenv.validation.runtime.contracts import RuntimePlan  # noqa: E402


def client(address: str) -> Any:
    return GenericEnvClient(base_url=f"http://{address}").sync()


def nothing(schema: dict[str, Any]) -> Any:
    """A value of a schema: no items, no flags, the least numbers."""
    if schema["type"] == "object":
        return {name: nothing(part) for name, part in schema["properties"].items()}
    if schema["type"] == "array":
        parts = schema.get("prefixItems") or [schema["items"]] * schema.get("minItems", 0)
        return [nothing(part) for part in parts]
    return {"boolean": False, "string": ""}.get(schema["type"], schema.get("minimum", 0))


def test_its_client_plays_cartpole_and_what_it_plays_is_recorded(tmp_path: Path) -> None:
    with gate("openenv", "--env", "CartPole-v1", "--data", str(tmp_path / "episodes")) as (address, _):
        played = []
        for _ in range(2):
            with client(address) as env:
                result = env.reset(seed=7, episode_id="mine")
                assert result.reward is None and not result.done
                shown = [result.observation["obs"]]
                while not result.done:
                    result = env.step({"action": 1})
                    assert result.reward == 1.0
                    shown.append(result.observation["obs"])
                assert result.observation["terminated"] and not result.observation["truncated"]
                assert env.state() == {"episode_id": "mine", "step_count": len(shown) - 1, "done": True}
                with pytest.raises(RuntimeError, match="reset"):
                    env.step({"action": 1})
                with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
                    env.step({"action": 2})
                played.append(shown)
        assert played[0] == played[1], "the same seed gives the same episode"
    listed = subprocess.run(
        [*program(), "replay", "ls", "--data", str(tmp_path / "episodes"), "--json"], capture_output=True, text=True, check=True
    )
    lengths = [json.loads(line)["length"] for line in listed.stdout.splitlines()]
    assert lengths == [len(played[0]) - 1] * 2


def test_its_client_plays_skirmish_by_the_schema_of_its_actions() -> None:
    import requests

    with gate("openenv", "--env", "Skirmish-v0", "--option", "opponent=beginner") as (address, _):
        schema = requests.get(f"http://{address}/schema").json()
        action = nothing(schema["action"]["properties"]["action"])
        with client(address) as env:
            begun = env.reset(seed=3, options={"map": "river"})
            assert not begun.done
            first = env.step({"action": action | {"ticks": 50}})
            second = env.step({"action": action | {"ticks": 50}})
            assert first.observation["obs"] != second.observation["obs"]
            assert env.state()["step_count"] == 2


KINDS = """
import gymnasium, numpy
from gymnasium import spaces

class Kinds(gymnasium.Env):
    action_space = spaces.Dict(
        say=spaces.Text(4, charset="abc"),
        go=spaces.MultiDiscrete([3, 4]),
        pair=spaces.Tuple((spaces.Discrete(3, start=2), spaces.Box(-1, 1, (2,), numpy.float32))),
    )
    observation_space = spaces.Dict(word=spaces.Text(4, charset="abc"), seen=spaces.Box(0, 255, (2, 2, 1), numpy.uint8))

    def show(self, word):
        return {"word": word, "seen": numpy.full((2, 2, 1), 7, numpy.uint8)}

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.show("a"), {}

    def step(self, action):
        return self.show(action["say"]), float(action["pair"][1][0] + action["go"][1]), False, False, {}

gymnasium.register("Kinds-v0", Kinds)
"""


def test_its_client_plays_a_python_env_with_texts_tuples_and_dicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kinds_of_spaces.py").write_text(KINDS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    allowed = ("--python", sys.executable, "--allow", "kinds_of_spaces")
    with gate("openenv", "--env", "gymnasium:kinds_of_spaces:Kinds-v0", *allowed) as (address, _), client(address) as env:
        seen = [[[7], [7]], [[7], [7]]]
        assert env.reset(seed=1).observation["obs"] == {"word": "a", "seen": seen}
        result = env.step({"action": {"say": "cab", "go": [2, 3], "pair": [4, [0.5, -1]]}})
        assert (result.observation["obs"]["word"], result.reward) == ("cab", 3.5)
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            env.step({"action": {"say": "d", "go": [2, 3], "pair": [4, [0.5, -1]]}})


def test_its_client_opens_as_many_sessions_as_may_be() -> None:
    with gate("openenv", "--env", "CartPole-v1", "--sessions", "2") as (address, _), client(address) as first:
        assert not first.reset().done
        with client(address) as second:
            assert not second.reset().done
            with pytest.raises(RuntimeError, match="CAPACITY_REACHED"), client(address) as third:
                third.reset()


def test_its_validator_finds_a_server_that_is_well() -> None:
    with gate("openenv", "--env", "CartPole-v1") as (address, _):
        report = validate_running_environment(f"http://{address}")
        assert report["passed"], report
        assert (report["mode"], report["standard_profile"]) == ("simulation", "openenv-http/1.x")


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "Skirmish-v0"])
def test_its_graders_find_schema_state_and_rewards_well(env: str) -> None:
    import requests

    with gate("openenv", "--env", env) as (address, _):
        schema = requests.get(f"http://{address}/schema").json()
        action = {"action": nothing(schema["action"]["properties"]["action"])}
        plan = RuntimePlan.model_validate(
            {"plan_schema_version": "1", "reset": {"episode_id": "e", "seed": 5}, "actions": [action] * 12}
        )
        evidence = collect_runtime_evidence(f"http://{address}", plan, episode_timeout_s=60)
    assert evidence.failure_reason is None, evidence
    manifest = types.SimpleNamespace(reward=RewardDeclaration(range=(-1e6, 1e6), floor_margin=0.0))
    subject = types.SimpleNamespace(runtime_evidence=evidence, manifest=manifest)
    for grader in (ObservationSchemaGrader(), StateContractGrader(), RewardWellFormedGrader()):
        result = grader.run(subject)
        assert result.status.value == "pass", (result.check_id, result.evidence)
