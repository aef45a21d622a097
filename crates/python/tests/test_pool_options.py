"""The arguments of ``Cluster.make_vec``: one list of them for all that open lanes on a cluster, checked before anything is sent."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollhouse
from rollhouse import errors
from rollhouse.aio import AsyncCluster
from rollhouse.launch import LaunchedCluster
from rollhouse.pool_options import PoolOptions


def asked(id: str = "CartPole-v1", num_envs: Any = 2, **arguments: Any) -> Any:
    # A cluster is asked only for what is right.
    return rollhouse.Cluster.make_vec(None, id, num_envs, **arguments)  # type: ignore[arg-type]


def test_the_options_are_the_arguments_of_make_vec() -> None:
    parameters = list(inspect.signature(rollhouse.Cluster.make_vec).parameters.values())[1:-1]
    options = fields(PoolOptions)
    assert [(one.name, one.annotation) for one in parameters] == [(field.name, field.type) for field in options[:-1]]
    assert options[-1].name == "options"


def test_whatever_opens_lanes_on_a_cluster_shows_these_arguments() -> None:
    expected = inspect.signature(rollhouse.Cluster.make_vec).parameters
    for facade in (AsyncCluster, LaunchedCluster):
        assert inspect.signature(facade.make_vec).parameters == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_envs", "4"),
        ("num_envs", True),
        ("seed", "x"),
        ("seed", [1, "x"]),
        ("copy", "yes"),
        ("record", 0.5),
        ("max_episode_steps", 5.0),
        ("transport", 1),
        ("labels", {"zone": 1}),
        ("labels", "zone"),
        ("spread", None),
        ("on_loss", 0),
        ("deterministic", "no"),
        ("render_size", 64),
        ("statistics", None),
        ("record_frames", "all"),
        ("leave_out", 1),
        ("lane_options", {"low": 1.0}),
        ("env_kwargs", ["seconds"]),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(TypeError) as refused:
        asked(**{name: value})
    assert str(refused.value).startswith(f"{name}={value!r} must be ")


@pytest.mark.parametrize("name", ["transport", "spread", "on_loss", "info_layout", "valid", "autoreset_mode"])
def test_a_word_that_is_none_of_those_known_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}='other' is not one of "):
        asked(**{name: "other"})


@pytest.mark.parametrize(("wrong", "meant"), [("autoresetmode", "autoreset_mode"), ("onloss", "on_loss"), ("seeds", "seed"), ("lows", "low")])
def test_an_unknown_argument_is_refused_with_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"unknown option '{wrong}'; did you mean '{meant}'") as refused:
        asked(**{wrong: 1})
    assert isinstance(refused.value, errors.UnknownOptionError) and refused.value.keyword == wrong


def test_numpys_numbers_are_numbers() -> None:
    made = {"seed": np.arange(2), "copy": np.bool_(True), "max_episode_steps": np.int64(5), "num_envs": np.int32(2)}
    with pytest.raises(AttributeError, match="_native"):
        asked(**made)


@pytest.mark.adapters("mypy")
def test_type_checkers_look_at_the_arguments_of_each(tmp_path: Path) -> None:
    (file := tmp_path / "asks.py").write_text(
        "from rollhouse import AsyncCluster, Cluster\n"
        "from rollhouse.launch import LaunchedCluster\n"
        "async def ask(one: Cluster, other: AsyncCluster, launched: LaunchedCluster) -> None:\n"
        "    one.make_vec('CartPole-v1', 4, copy=True, low=0.5)\n"
        "    (await other.make_vec('CartPole-v1', num_envs=4, spread='even')).num_envs\n"
        "    launched.make_vec('CartPole-v1').placements\n"
        "    one.make_vec('CartPole-v1', copy='yes')\n"
        "    await other.make_vec('CartPole-v1', spread='wide')\n"
        "    launched.make_vec('CartPole-v1', '4')\n"
    )
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), file], cwd=tmp_path, capture_output=True, text=True)
    assert [line.split(":")[1] for line in done.stdout.splitlines() if "error:" in line] == ["7", "8", "9"], done.stdout
