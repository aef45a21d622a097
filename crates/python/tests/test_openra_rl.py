"""`openra-rl` as it comes from PyPI: its environment and its server start our gate as their engine, and play Skirmish-v0."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openra_env", reason="openra-rl is not installed")
pytest.importorskip("grpc")

from openra_bridge import program  # noqa: E402

LAUNCHER = Path(__file__).parents[3] / "deploy/openra"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables by which openra-rl finds our gate as its engine."""
    port = str(free_port())
    variables = {
        "OPENRA_PATH": str(LAUNCHER),
        "ROLLHOUSE": shlex.join(program()),
        "ROLLHOUSE_GATE": f"--ticks-per-second 500 --data {tmp_path / 'games'}",
        "ROLLHOUSE_GATE_LOG": str(tmp_path / "gate.log"),
        "RL_GRPC_PORT": port,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    yield variables


def called(environment: Any, tool: str, **arguments: Any) -> Any:
    """What a tool of an environment answers."""
    from openenv.core.env_server.mcp_types import CallToolAction

    observation = environment.step(CallToolAction(tool_name=tool, arguments=arguments))
    assert observation.error is None, observation.error
    result = observation.result
    return getattr(result, "data", None) or result


def test_its_environment_plays_our_world_by_its_tools(engine: dict[str, str], tmp_path: Path) -> None:
    from openra_env.server.openra_environment import OpenRAEnvironment

    environment = OpenRAEnvironment(
        openra_path=str(LAUNCHER), grpc_port=int(engine["RL_GRPC_PORT"]), bot_type="beginner", planning_enabled=True
    )
    try:
        first = environment.reset()
        assert (first.tick, first.done) == (0, False)
        called(environment, "start_planning_phase")
        done = called(environment, "end_planning_phase", strategy="build, then scout")
        assert done["planning_complete"] and done["own_buildings"] == 1
        built = called(environment, "build_and_place", building_type="powr")
        assert "error" not in built, built
        seen = called(environment, "advance", ticks=300)
        assert seen["tick"] >= 300 and not seen["done"]
        for _ in range(20):
            seen = called(environment, "advance", ticks=25)
            if seen["own_buildings"] == 2:
                break
        assert seen["own_buildings"] == 2, "the power plant stands where the tool placed it"
        state = called(environment, "get_game_state")
        assert state["tick"] >= 300 and "powr" in json.dumps(state)
        moved = called(environment, "attack_move", unit_ids="all_combat", target_x=12, target_y=12)
        assert "error" not in moved, moved
        called(environment, "advance", ticks=50)
        units = called(environment, "get_units")
        assert "e1" in json.dumps(units)
        second = environment.reset()
        assert (second.tick, second.done) == (0, False), "another engine was started"
    finally:
        environment.close()
    listed = subprocess.run(
        [*program(), "replay", "ls", "--data", str(tmp_path / "games"), "--json"], capture_output=True, text=True, check=True
    )
    assert any(json.loads(line)["length"] >= 300 for line in listed.stdout.splitlines())


def test_its_server_and_its_client_play_our_world(engine: dict[str, str], tmp_path: Path) -> None:
    from openra_env.client import OpenRAEnv
    from openra_env.models import ActionType, CommandModel, OpenRAAction

    port = free_port()
    line = [sys.executable, "-m", "uvicorn", "openra_env.server.app:app", "--host", "127.0.0.1", "--port", str(port)]
    # Its server learns the engine's port from here alone.
    (tmp_path / "config.yaml").write_text(f"game:\n  grpc_port: {engine['RL_GRPC_PORT']}\n")
    # In a group of its own, for it leaves its engine behind when it is ended.
    server = subprocess.Popen(
        line, cwd=tmp_path, env=os.environ | engine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        assert server.stdout is not None
        for written in server.stdout:
            if "Uvicorn running" in written:
                break
        with OpenRAEnv(base_url=f"http://127.0.0.1:{port}").sync() as client:
            first = client.reset()
            assert first.observation.tick == 0
            build = CommandModel(action=ActionType.BUILD, item_type="powr")
            result = client.step(OpenRAAction(commands=[build]))
            ticks = [result.observation.tick]
            for _ in range(10):
                result = client.step(OpenRAAction(commands=[CommandModel(action=ActionType.NO_OP)]))
                ticks.append(result.observation.tick)
            assert ticks == sorted(set(ticks)) and ticks[0] > 0
            assert [item.item for item in result.observation.production] == ["powr"]
            assert {unit.type for unit in result.observation.units} == {"e1", "jeep"}
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
