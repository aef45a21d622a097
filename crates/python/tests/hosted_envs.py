"""Envs that the tests of hosted lanes run in workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ZOO: dict[str, spaces.Space] = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "scalar": spaces.Box(-1, 1, (), np.float64),
    "image": spaces.Box(0, 255, (6, 5, 3), np.uint8),
    "half": spaces.Box(-1, 1, (2,), np.float16),
    "flags": spaces.Box(0, 1, (3,), np.bool_),
    "empty": spaces.Box(0, 1, (0,), np.float32),
    "discrete": spaces.Discrete(5, start=-2),
    "discrete32": spaces.Discrete(4, dtype=np.int32),
    "multi": spaces.MultiDiscrete([[3, 4], [5, 6]], dtype=np.int16),
    "binary": spaces.MultiBinary([2, 3]),
    "text": spaces.Text(8),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32))),
    "dict": spaces.Dict({"b": spaces.Box(-1, 1, (2,)), "a": spaces.Dict({"c": spaces.MultiBinary(2)})}),
    "mixed": spaces.Dict({"word": spaces.Text(4), "box": spaces.Box(-1, 1, (2,)), "t": spaces.Tuple((spaces.Text(2),))}),
    "graph": spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(3)),
    "sequence": spaces.Sequence(spaces.Discrete(7)),
    "stacked": spaces.Sequence(spaces.Box(-1, 1, (2,)), stack=True),
    "oneof": spaces.OneOf((spaces.Discrete(3), spaces.Box(-1, 1, (2,)))),
}


class ZooEnv(gymnasium.Env):
    """Observes and acts in any space; says much, and not always the same, in nested infos."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(self, space: spaces.Space, length: int = 7, reuse: bool = False, action: spaces.Space | None = None):
        # Of its own: envs in one process would else draw from one generator.
        self.observation_space, self.action_space = deepcopy(space), deepcopy(action or space)
        self.length = length
        self.reuse = reuse
        self.render_mode = "rgb_array"
        self._info: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        self.end = int(self.np_random.integers(1, self.length))
        return self.observation_space.sample(), self.info({"options": repr(options)})

    def step(self, action: Any):
        assert action in self.action_space, action
        self.steps += 1
        done = self.steps >= self.end
        reward = [1, np.float32(0.1), 2.5, np.int64(3), np.array(0.3)][self.steps % 5]
        info = self.info({"action": repr((type(action), action))})
        return self.observation_space.sample(), reward, done and self.end % 2 == 0, np.bool_(done), info

    def info(self, more: dict[str, Any]) -> dict[str, Any]:
        if self.steps % 3 == 2:
            return {}
        info = self._info if self.reuse else {}
        info.clear()
        info.update(more, steps=self.steps, score=self.steps / 3, late=self.steps > 3)
        info["nested"] = {"deep": {"array": np.arange(3) * self.steps, "name": f"s{self.steps}"}, "flag": True}
        if self.steps == 1:
            info["first"] = None
        return info

    def render(self):
        return np.full((2, 2, 3), self.steps, np.uint8)


class CountEnv(gymnasium.Env):
    """Counts its steps; its action says what else happens in them."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(8)

    FINE, RAISE, EXIT, HANG, KILL, STOP, END, PRINT = range(8)

    def __init__(self, fail_in_reset: str | None = None):
        self.fail_in_reset = fail_in_reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if options and options.get("fail"):
            raise RuntimeError("told to fail in reset")
        if self.fail_in_reset and os.path.exists(self.fail_in_reset):
            raise RuntimeError("fails in every reset")
        self.count = 0.0
        return np.array([self.count]), {}

    def step(self, action: int):
        self.count += 1
        if action == self.RAISE:
            raise ZeroDivisionError("told to raise")
        if action == self.EXIT:
            sys.exit(5)
        if action == self.HANG:
            while True:
                time.sleep(1)
        if action == self.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == self.STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        if action == self.PRINT:
            print("env code prints", flush=True)
        return np.array([self.count]), 1.0, action == self.END, False, {}


class SeedsEnv(CountEnv):
    """Keeps the seeds that its resets are given; a new one has none. Its action RAISE loses it."""

    def __init__(self):
        super().__init__()
        self.given: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.given.append(seed)
        return super().reset(seed=seed, options=options)


class FloodEnv(CountEnv):
    """Writes ones over all memory that its process shares with others, with action FLOOD, and ends it."""

    FLOOD = 7

    def step(self, action: int):
        if action != self.FLOOD:
            return super().step(action)
        with open("/proc/self/maps") as maps:
            shared = [line.split(" ", 1)[0] for line in maps if "/memfd:rollhouse" in line]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            for start, end in ([int(at, 16) for at in one.split("-")] for one in shared):
                memory.seek(start)
                memory.write(b"\xff" * (end - start))
        sys.exit(5)


class ClientEnv(CountEnv):
    """Is a client of a server that refuses the first so many calls: files of a folder count those of its constructor and
    those of its resets, of all lanes together. The action END ends an episode.
    """

    def __init__(self, folder: str, making: int = 0, resetting: int = 0, hangs: bool = False):
        super().__init__()
        self.folder, self.resetting, self.hangs = folder, resetting, hangs
        self.call("made", making)

    def call(self, what: str, refusals: int) -> None:
        with open(os.path.join(self.folder, what), "ab", buffering=0) as calls:
            calls.write(b"x")
            number = calls.tell()
        while self.hangs and number > refusals:
            time.sleep(1)
        if number <= refusals:
            raise ConnectionRefusedError(f"call {number} is refused")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.call("reset", self.resetting)
        return super().reset(seed=seed, options=options)


class GameEnv(gymnasium.Env):
    """Ends with each action, which says how: what the infos of the last step say of the episode."""

    INFOS: list[dict[str, Any]] = [
        {"result": "win", "score": 3.0},
        {"result": "lose", "score": np.float32(-1.5)},
        {"result": "draw"},
        {"score": np.int64(7), "other": [1]},
        {"result": ["win"], "score": float("nan")},
        {"result": "won", "score": float("inf")},
        {"result": True, "score": True},
        {},
    ]
    VERDICTS = [("win", 3.0), ("lose", -1.5), ("draw", None), (None, 7.0), *[(None, None)] * 4]

    observation_space = spaces.Box(0, 1, (1,), np.float64)
    action_space = spaces.Discrete(len(INFOS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: int):
        return np.ones(1), 1.0, True, False, dict(self.INFOS[action])


class Unpicklable(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, one: int, two: int):
        super().__init__(one)


class TornEnv(CountEnv):
    """Says what cannot be pickled, raises what cannot be, or returns what its space does not hold."""

    def step(self, action: int):
        observation, reward, terminated, truncated, info = super().step(self.FINE)
        if action == 1:
            info["generator"] = (i for i in range(3))
        if action == 2:
            raise Unpicklable(1, 2)
        if action == 3:
            observation = np.zeros(2)
        if action == 4:
            observation = np.array(["a"])
        return observation, reward, terminated, truncated, info


class GateEnv(CountEnv):
    """Stands still in a step of action 1 and in ``stand``: it opens the FIFO ``in``, then waits for who opens ``out``."""

    def __init__(self, folder: str):
        super().__init__()
        self.folder = folder

    def stand(self) -> None:
        for name, mode in (("in", "w"), ("out", "r")):
            with open(f"{self.folder}/{name}", mode):
                pass

    def step(self, action: int):
        if action == 1:
            self.stand()
        return super().step(self.FINE)


class Camera(gymnasium.Env):
    """Sees noise for five steps, in lanes of worker processes."""

    observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        return self.look(), 1.0, self.steps == 5, False, {}

    def look(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
