"""Envs whose actions have texts and sequences."""

import string

import gymnasium
import numpy as np
from gymnasium import spaces

WIDE = "aβ漢🙂 "


def told(action):
    """Describes an action with its types, in letters and digits."""
    if isinstance(action, dict):
        return " ".join(f"{name} {told(part)}" for name, part in action.items())
    if isinstance(action, tuple):
        return " ".join(["tuple", *map(told, action), "end"])
    if isinstance(action, str):
        return " ".join([type(action).__name__, *(str(ord(character)) for character in action)])
    assert isinstance(action, (np.ndarray, np.generic)), type(action)
    return f"{type(action).__name__} {action.dtype} {action.shape} {action.tobytes().hex()}"


class Say(gymnasium.Env):
    """Shows the action that it was given, for some steps; refuses what is none."""

    metadata = {"max_lengths": {"": 1}, "deterministic": True}
    action_space = spaces.Text(6, min_length=2, charset=WIDE)

    def __init__(self):
        self.observation_space = spaces.Text(9000, min_length=0, charset=string.ascii_letters + string.digits + "_ (),")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 9))
        return "", {}

    def step(self, action):
        if action not in self.action_space:
            raise ValueError(f"no action: {action!r}")
        self.left -= 1
        return told(action), float(self.left), self.left == 0, False, {}


class Route(Say):
    """Takes a sequence."""

    metadata = {"max_action_lengths": {"": 4}, "deterministic": True}
    action_space = spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32), stack=True)


class Path(Say):
    """Takes a sequence of bits."""

    metadata = {"max_action_lengths": {"": 2}}
    action_space = spaces.Sequence(spaces.MultiBinary(3))


class Squads(Say):
    """Takes sequences of small dicts and tuples."""

    metadata = {"max_action_lengths": {"seen": 3, "units": 4}, "deterministic": True}
    action_space = spaces.Dict({
        "seen": spaces.Sequence(spaces.Tuple((spaces.Discrete(3, start=2), spaces.MultiBinary(2)))),
        "units": spaces.Sequence(
            spaces.Dict({"at": spaces.Box(-1, 1, (2,), np.float16), "of": spaces.Dict({"hp": spaces.Discrete(9)})}), stack=True
        ),
    })


class Plan(Say):
    """Takes texts and sequences of all kinds among other things."""

    metadata = {"max_action_lengths": {"log/0": 3, "log/1": 5, "bits": 2, "steps": 7, "far": 2}, "max_lengths": {"bits": 9}}
    action_space = spaces.Dict({
        "says": spaces.Text(6, min_length=0, charset="ab \0"),
        "where": spaces.Box(-1, 1, (3,), np.float64),
        "log": spaces.Tuple((
            spaces.Sequence(spaces.Box(-1, 1, (2, 2), np.float32)), spaces.Sequence(spaces.Discrete(5, start=3), stack=True)
        )),
        "bits": spaces.Sequence(spaces.MultiBinary(3)),
        "steps": spaces.Sequence(spaces.MultiDiscrete([3, 4])),
        "far": spaces.Sequence(spaces.Box(-300, 300, (), np.int16), stack=True),
        "go": spaces.Discrete(3, start=-1),
    })


class Talk:
    """A parallel env in PettingZoo's words: one agent says something, and another goes somewhere until it is there."""

    metadata = {"name": "talk", "max_action_lengths": {"goes": 3}}
    render_mode = None
    possible_agents = ["says", "goes"]

    def __init__(self):
        self.agents = []
        self.acts = {"says": Say.action_space, "goes": spaces.Sequence(spaces.Discrete(4))}

    @property
    def unwrapped(self):
        return self

    def observation_space(self, agent):
        return Say().observation_space

    def action_space(self, agent):
        return self.acts[agent]

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.there = 2 + seed % 3
        self.agents, self.steps = list(self.possible_agents), 0
        return {agent: "" for agent in self.agents}, {}

    def step(self, actions):
        assert actions.keys() == set(self.agents)
        self.steps += 1
        over = {agent: self.steps >= (self.there if agent == "goes" else 5) for agent in self.agents}
        shown = {agent: told(actions[agent]) for agent in self.agents}
        rewards, cuts = {agent: 1.0 for agent in self.agents}, {agent: False for agent in self.agents}
        self.agents = [agent for agent in self.agents if not over[agent]]
        return shown, rewards, over, cuts, {}


class Long(Say):
    """Takes more than a row has."""

    def __init__(self, most):
        super().__init__()
        self.action_space = spaces.Text(most)


class Endless(Say):
    """Declares the maximum of a sequence as that of an observation."""

    metadata = {"max_lengths": {"": 4}}
    action_space = spaces.Sequence(spaces.Discrete(3))
