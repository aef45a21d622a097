"""Pictures of envs that cannot be recomputed are recorded beside their steps when that is asked for."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import rollhouse

LENGTH = 7
"""Steps of an episode."""


class PaintedEnv(gymnasium.Env):
    """Its picture says which episode of which lane it is, and which step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, lane: int, render_mode: str | None = "rgb_array", fails_at: int | None = None):
        self.lane, self.render_mode, self.fails_at = lane, render_mode, fails_at
        self.number, self.age = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.number, self.age = self.number + 1, 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.age += 1
        return np.zeros(2, np.float32), 1.0, self.age == LENGTH + self.lane, False, {}

    def render(self) -> Any:
        if self.age == self.fails_at:
            raise RuntimeError("no paint left")
        return painted(self.lane, self.number, self.age)


def painted(lane: int, number: int, age: int) -> np.ndarray:
    image = np.zeros((24, 32, 3), np.uint8)
    image[:, : lane + 1, 0], image[: number + 1, :, 1], image[age, :, 2] = 255, 255, 255
    return image


def make(**options: Any) -> list[partial[PaintedEnv]]:
    return [partial(PaintedEnv, lane, **options) for lane in range(3)]


@pytest.mark.parametrize("first_done", [False, True])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_each_picture_is_read_back_at_its_step(tmp_path: Path, mode: str, first_done: bool) -> None:
    envs = rollhouse.vectorize(
        make(), workers=2, autoreset_mode=mode, record=True, record_frames=3, data=tmp_path
    )
    envs.reset(seed=1)
    for _ in range(30):
        actions = np.zeros(3, np.int64)
        if first_done:
            envs.send(actions)
            *_, terminations, truncations, _infos = envs.recv()
        else:
            *_, terminations, truncations, _infos = envs.step(actions)
        if mode == "Disabled" and terminations.any():
            envs.reset(options={"reset_mask": terminations})
    envs.close()
    assert envs.recording is not None and envs.recording.figures is not None
    assert envs.recording.figures["lost_frames"] == 0
    replays = rollhouse.replays.open(tmp_path)
    finished = [info for info in replays if info.finished]
    assert {info.lane for info in finished} == {0, 1, 2} and len(finished) > 6
    for info in replays:
        assert info.record_frames == 3
        frames = dict(replays.frames(info))
        last = {info.length} if info.finished else set()
        assert set(frames) == {*range(0, info.length + 1, 3), *last}, info
        for age, image in frames.items():
            assert np.array_equal(image, painted(info.lane, info.number, age)), (info, age)
    # What it costs is known where it is asked for: the steps themselves are the same.
    report = replays.verify()
    assert report.ok and not report.damage


def test_they_are_shown_and_exported_by_the_command(tmp_path: Path) -> None:
    envs = rollhouse.vectorize(make(), workers=1, record=True, record_frames=2, data=tmp_path)
    envs.reset(seed=1)
    for _ in range(20):
        envs.step(np.zeros(3, np.int64))
    envs.close()
    info = next(info for info in rollhouse.replays.open(tmp_path) if info.lane == 1)

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "rollhouse", *words, "--data", str(tmp_path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "of every 2 steps" in run("replay", "show", info.id)
    image = pytest.importorskip("PIL.Image")
    png, gif = tmp_path / "step.png", tmp_path / "film.gif"
    run("replay", "export", info.id, "--format", "png", "--at", "4", "-o", str(png))
    assert np.array_equal(np.asarray(image.open(png).convert("RGB")), painted(1, info.number, 4))
    run("replay", "export", info.id, "--format", "gif", "-o", str(gif))
    assert image.open(gif).n_frames > 3
    page = tmp_path / "page.html"
    run("replay", "export", info.id, "--format", "html", "-o", str(page))
    assert "draws no picture" not in page.read_text()


def test_without_being_asked_there_are_none(tmp_path: Path) -> None:
    envs = rollhouse.vectorize(make(), record=True, data=tmp_path)
    envs.reset(seed=1)
    envs.step(np.zeros(3, np.int64))
    envs.close()
    replays = rollhouse.replays.open(tmp_path)
    for info in replays:
        assert info.record_frames is None and list(replays.frames(info)) == []


def test_an_env_that_fails_to_draw_goes_on_and_that_is_said_once(tmp_path: Path) -> None:
    envs = rollhouse.vectorize(make(fails_at=2), workers=1, record=True, record_frames=1, data=tmp_path)
    with pytest.warns(UserWarning, match="no paint left") as warned:
        envs.reset(seed=1)
        for _ in range(5):
            _, rewards, *_ = envs.step(np.zeros(3, np.int64))
            assert rewards.tolist() == [1.0, 1.0, 1.0]
    assert len([warning for warning in warned if "record_frames" in str(warning.message)]) == 1
    envs.close()
    replays = rollhouse.replays.open(tmp_path)
    for info in replays:
        assert [age for age, _ in replays.frames(info)] == [0, 1, 3, 4, 5]


def test_bad_arguments_are_refused_by_name(tmp_path: Path) -> None:
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="record_frames"):
            rollhouse.vectorize(make(), record=True, record_frames=bad, data=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only with record=True"):
        rollhouse.vectorize(make(), record_frames=1)
    with pytest.raises(ValueError, match="render_mode=None"):
        rollhouse.vectorize(make(render_mode=None), record=True, record_frames=1, data=tmp_path)
