"""Workers know what the script knows that makes a vector env: envs that it registered, and its own classes and functions."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import copy, os, pickle, sys, threading
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv

import rollhouse


class Level:
    def __init__(self, length):
        self.length = length


class Unreached(Level):
    pass


def prize(steps):
    return float(steps)


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=5):
        self.level = Level(length)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.array([self.at], np.float64), {}

    def step(self, action):
        self.at += int(action)
        return np.array([self.at], np.float64), prize(self.at), self.at >= self.level.length, False, {}

    def saved(self):
        level, pays = pickle.loads(pickle.dumps((self.level, prize)))
        assert type(level) is Level and pays is prize
        return self.level

    def load(self, path):
        return type(pickle.loads(Path(path).read_bytes())).__name__


class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


def play(envs, theirs):
    envs.action_space.seed(1)
    one, two = envs.reset(seed=3), theirs.reset(seed=3)
    assert one[0].tolist() == two[0].tolist()
    for _ in range(20):
        actions = envs.action_space.sample()
        one, two = envs.step(actions), theirs.step(actions)
        assert all(np.array_equal(a, b) for a, b in zip(one[:4], two[:4])), (one, two)
    theirs.close()
    envs.close()
"""


def run(body: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own."""
    path = folder / "script.py"
    path.write_text(SCRIPT + textwrap.dedent(body))
    return subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True, timeout=300)


def fine(body: str, folder: Path) -> None:
    """Runs a script that has to reach its end."""
    ended = run(textwrap.dedent(body) + "\nprint('fine')\n", folder)
    assert ended.returncode == 0 and ended.stdout.endswith("fine\n"), ended.stderr


REGISTERED = {
    "a class": "entry_point=Corridor",
    "a text": "entry_point='__main__:Corridor'",
    "a function": "entry_point=lambda **kwargs: Corridor(**kwargs)",
    "arguments of its own": "entry_point=Corridor, kwargs={'length': 3}, max_episode_steps=7",
    "wrappers": "entry_point='__main__:Corridor', additional_wrappers=(Doubled.wrapper_spec(),)",
    "a module's class": "entry_point='beside:Beside'",
}


@pytest.mark.parametrize("how", REGISTERED)
def test_envs_that_the_script_registers_are_made_by_its_workers(how: str, tmp_path: Path) -> None:
    """Symptom: NamespaceNotFound in the worker, which has a registry of its own. Through functions and ids."""
    (tmp_path / "beside.py").write_text(
        "import gymnasium\nclass Beside(gymnasium.Env):\n    observation_space = gymnasium.spaces.Discrete(3)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n        return 0, {}\n"
        "    def step(self, action):\n        return int(action), 1.0, False, False, {}\n"
    )
    body = f"""
        gymnasium.register("mine/Corridor-v0", {REGISTERED[how]})
        makes = [lambda: gymnasium.make("mine/Corridor-v0")] * 3
        play(rollhouse.vectorize(makes, workers=2), SyncVectorEnv(makes))
        play(rollhouse.vectorize([lambda: gymnasium.make("mine/Corridor")] * 3, workers=2), SyncVectorEnv(makes))
        play(rollhouse.make_vec("gymnasium:mine/Corridor-v0", 3, workers=2), SyncVectorEnv(makes))
        """
    fine(body, tmp_path)


def test_an_env_registered_in_place_of_gymnasiums_is_the_one_that_workers_make(tmp_path: Path) -> None:
    body = """
        gymnasium.register("CartPole-v1", entry_point=Corridor)
        makes = [lambda: gymnasium.make("CartPole-v1")] * 2
        play(rollhouse.vectorize(makes), SyncVectorEnv(makes))
        """
    fine(body, tmp_path)


@pytest.mark.adapters("torch", "stable_baselines3")
def test_the_adapter_of_stable_baselines3_makes_what_the_script_registers(tmp_path: Path) -> None:
    body = """
        from rollhouse.sb3 import make_vec_env
        gymnasium.register("mine/Corridor-v0", entry_point="__main__:Corridor")
        for id in ("gymnasium:mine/Corridor-v0", lambda: gymnasium.make("mine/Corridor-v0"), Corridor):
            envs = make_vec_env(id, 2, wrapper_class=Doubled)
            envs.reset()
            assert envs.step(np.array([1, 1]))[1].tolist() == [2.0, 2.0]
            envs.close()
        """
    fine(body, tmp_path)


def test_names_of_the_script_that_envs_pickle_are_there_in_workers(tmp_path: Path) -> None:
    """Symptom: PicklingError, attribute lookup Level on __main__ failed. In each lane of a worker, and in workers that
    differ; what comes back is of the script's own class."""
    body = """
        Path("level").write_bytes(pickle.dumps(Unreached(4)))
        for makes in ([Corridor] * 4, [lambda length=length: Corridor(length) for length in range(1, 5)]):
            envs = rollhouse.vectorize(makes, workers=2)
            envs.reset(seed=0)
            assert all(type(level) is Level for level in envs.call("saved"))
            assert envs.call("load", "level") == ("Unreached",) * 4
            envs.set_attr("level", [Level(9)] * 4)
            assert [level.length for level in envs.get_attr("level")] == [9] * 4
            envs.close()
        envs = rollhouse.make_vec("__main__:Corridor", 2, length=2)
        envs.reset(seed=0)
        assert type(envs.call("saved")[0]) is Level
        envs.close()
        """
    fine(body, tmp_path)


def test_a_process_of_multiprocessing_sends_the_names_of_its_script_too(tmp_path: Path) -> None:
    """It calls its script's module ``__mp_main__``."""
    body = """
        import multiprocessing

        def child():
            gymnasium.register("mine/Corridor-v0", entry_point=f"{__name__}:Corridor")
            makes = [lambda: gymnasium.make("mine/Corridor-v0"), Corridor]
            envs = rollhouse.vectorize(makes, workers=2)
            envs.reset(seed=0)
            assert type(envs.call("saved")[0]) is Level
            envs.close()

        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=child)
            process.start()
            process.join()
            assert process.exitcode == 0
        """
    fine(body, tmp_path)


def test_what_cannot_be_sent_is_named_when_it_is_missed_and_not_before(tmp_path: Path) -> None:
    body = """
        gymnasium.register("mine/Locked-v0", entry_point=Corridor, kwargs={"length": threading.Lock()})

        class Locked(Level):
            lock = threading.Lock()

        Path("level").write_bytes(pickle.dumps(Locked(4)))
        envs = rollhouse.vectorize([Corridor] * 2)
        envs.reset(seed=0)
        try:
            envs.call("load", "level")
        except Exception as error:
            assert "Locked" in str(error) and "lock" in str(error) and "__main__" in str(error), error
        else:
            raise AssertionError("a class with a lock was sent")
        envs.close()
        try:
            rollhouse.vectorize([lambda: gymnasium.make("mine/Locked-v0")])
        except Exception as error:
            assert "mine/Locked-v0" in str(error) and "lock" in str(error), error
        else:
            raise AssertionError("an env with a lock was sent")
        """
    fine(body, tmp_path)


def test_a_function_that_cannot_be_sent_is_named_by_its_index_where_the_script_has_it(tmp_path: Path) -> None:
    ended = run(
        """
        lock = threading.Lock()

        def locked():
            with lock:
                return Corridor()

        rollhouse.vectorize([Corridor, locked])
        """,
        tmp_path,
    )
    assert ended.returncode == 1 and "TypeError: env_fns[1]=" in ended.stderr and "lock" in ended.stderr, ended.stderr
