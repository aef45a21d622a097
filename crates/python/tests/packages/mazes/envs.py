"""Envs of many kinds, and some that do what none should."""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Maze(gymnasium.Env):
    """A walk on a line of `size` places, with noise of its own generator."""

    def __init__(self, size, end="left"):
        self.size, self.end = size, end
        self.observation_space = spaces.Box(-1, size, (4,), np.float64)
        self.action_space = spaces.Discrete(2, start=5)

    def _shown(self):
        return np.concatenate([[self.place], self.np_random.uniform(-1, 1, 3)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(1, self.size - 1))
        return self._shown(), {}

    def step(self, action):
        self.place += -1 if action == 5 else 1
        over = self.place in (0, self.size - 1)
        won = {"result": "win" if self.place else "lose", "score": self.place}
        return self._shown(), float(self.np_random.normal()), over, False, won if over else {}


class Arm(Maze):
    """Observations and actions of other kinds."""

    def __init__(self, size):
        super().__init__(size)
        seen = spaces.Tuple((spaces.Discrete(size, start=-1), spaces.Box(0, 255, (2, 3), np.uint8)))
        self.observation_space = spaces.Dict({"where": spaces.Box(-1, 1, (3,), np.float32), "seen": seen})
        self.action_space = spaces.Box(-1, 1, (2,), np.float64)

    def _shown(self):
        picture = self.np_random.integers(0, 256, (2, 3), np.uint8)
        where = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return {"seen": (self.place - 1, picture), "where": where}

    def step(self, action):
        return super().step(5 if action[0] < action[1] else 6)


class Panel(Maze):
    """Several choices in an observation, and in an action."""

    def __init__(self, size):
        super().__init__(size)
        self.observation_space = spaces.MultiDiscrete([size, 4], start=[0, -1])
        self.action_space = spaces.MultiBinary(2)

    def _shown(self):
        return np.array([self.place, self.np_random.integers(-1, 3)])

    def step(self, action):
        return super().step(5 if action[0] < action[1] else 6)


class Wild(Maze):
    """Does what no env should, with action 6 and once."""

    def __init__(self, size, how, mark=None):
        super().__init__(size)
        self.how, self.mark = how, mark

    def step(self, action):
        shown = super().step(5)
        if action == 6 and self.how:
            how, self.how = self.how, None
            shown = getattr(self, how)(*shown) or shown
        return shown

    def shape(self, seen, *rest):
        return np.zeros(5), *rest

    def dtype(self, seen, *rest):
        return seen.astype("U"), *rest

    def three(self, *shown):
        return shown[:3]

    def reward(self, seen, reward, *rest):
        return seen, float("nan"), *rest

    def words(self, seen, reward, *rest):
        return seen, "much", *rest

    def prints(self, *shown):
        for _ in range(1024):
            os.write(1, b"x" * (1 << 20))

    def exits(self, *shown):
        os._exit(0)

    def forks(self, *shown):
        import subprocess
        with open(self.mark, "w") as mark:
            mark.write(str(subprocess.Popen(["sleep", "1000"]).pid))
        os._exit(0)

    def deaf(self, *shown):
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)

    def scribbles(self, *shown):
        import gc
        worker = next(one for one in gc.get_objects() if type(one).__module__ == "rollhouse.env_worker" and type(one).__name__ == "Worker")
        for at in worker.places:
            last = int.from_bytes(worker.memory[at : at + 8], "little") >> 8
            worker.link.publish(at, (last + 1) << 8 | 0x55)
        # Its own answer would stand over that.
        while True:
            time.sleep(1)

    def fills(self, *shown):
        with open("/proc/self/maps") as maps:
            shared = [line.split(" ", 1)[0] for line in maps if "/memfd:rollhouse" in line]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            for start, end in ([int(at, 16) for at in one.split("-")] for one in shared):
                memory.seek(start)
                memory.write(bytes([255]) * (end - start))
        os._exit(0)


class Painted(Maze):
    """Draws itself."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}

    def __init__(self, size, render_mode=None):
        super().__init__(size)
        self.render_mode = render_mode

    def render(self):
        picture = np.zeros((6, self.size, 3), np.uint8)
        picture[:, self.place] = (255, self.place, 7)
        return picture


class Hands(Maze):
    """Actions of several columns, of all kinds."""

    def __init__(self, size):
        super().__init__(size)
        grip = spaces.Tuple((spaces.MultiDiscrete([2, 3], start=[-1, 4]), spaces.MultiBinary(3)))
        push = spaces.Box(-1, 1, (2, 2), np.float32)
        far = spaces.Box(-5, 5, (), np.float64)
        self.action_space = spaces.Dict({"push": push, "way": spaces.Discrete(2, start=5), "grip": grip, "far": far})

    def step(self, action):
        assert self.action_space.contains(action), action
        choices, bits = action["grip"]
        shown, reward, *rest = super().step(action["way"])
        felt = float(action["push"].sum()) + float(action["far"]) + 7 * choices[0] + 11 * choices[1] + bits @ [1, 2, 4]
        return shown, reward + felt, *rest


class Small(Maze):
    """Observations and actions of types that columns do not have."""

    def __init__(self, size):
        super().__init__(size)
        halves = spaces.Box(-9, 9, (2,), np.float16)
        self.observation_space = spaces.Dict({"way": spaces.Box(-1, 100, (), np.int8), "halves": halves})
        self.action_space = spaces.Box(0, 9, (2,), np.int16)

    def _shown(self):
        return {"way": np.int8(self.place), "halves": self.np_random.uniform(-9, 9, 2).astype(np.float16)}

    def step(self, action):
        assert action.dtype == np.int16
        return super().step(5 if action[0] < action[1] else 6)


class Narrow(Maze):
    """Choices of types narrower than int64, as an observation and as an action, alone or in a Dict."""

    def __init__(self, size, dtype="int32", nested=True):
        super().__init__(size)
        self.nested, self.kind = nested, np.dtype(dtype)
        way = spaces.Discrete(size + 1, start=1, dtype=self.kind)
        both = spaces.MultiDiscrete([3, 2], dtype=np.uint8, start=np.array([250, 0], np.uint8))
        self.observation_space = spaces.Dict({"way": way, "both": both}) if nested else way
        self.action_space = spaces.Dict({"pick": both, "way": spaces.Discrete(2, start=5, dtype=self.kind)})
        if not nested:
            self.action_space = self.action_space["way"]

    def _shown(self):
        way = self.kind.type(self.place + 1)
        both = np.array([250, 0] + self.np_random.integers(0, [3, 2]), np.uint8)
        return {"way": way, "both": both} if self.nested else way

    def step(self, action):
        assert self.action_space.contains(action), action
        way = action["way"] if self.nested else action
        assert way.dtype == self.kind
        shown, reward, *rest = super().step(int(way))
        return shown, reward + (int(action["pick"] @ np.array([1, 7])) if self.nested else 0), *rest


class Wide(Maze):
    """Observations of many columns."""

    def __init__(self, size, columns=64):
        super().__init__(size)
        few = [spaces.Box(-1, 1, (2,), np.float32), spaces.MultiBinary(3), spaces.Discrete(size)]
        self.observation_space = spaces.Dict({f"c{at:02}": few[at % 3] for at in range(columns)})

    def _shown(self):
        unit = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        few = [unit, self.np_random.integers(0, 2, 3, np.int8), self.place]
        return {name: few[at % 3] for at, name in enumerate(self.observation_space)}


class Greedy(Maze):
    """Takes memory with action 6, `size` MiB."""

    def step(self, action):
        if action == 6:
            self.kept = bytearray(self.size << 20)
            self.place = 1
            action = 5
        return self._shown(), 0.0, False, False, {}


class Patient(Maze):
    """Is made only once somebody writes to a pipe."""

    def __init__(self, size, pipe):
        super().__init__(size)
        os.close(os.open(pipe, os.O_RDONLY))


class Client(Maze):
    """Is a client of a server, which listens once there is a file."""

    def __init__(self, size, server):
        super().__init__(size)
        self.server = server
        self.connect()

    def connect(self):
        if not os.path.exists(self.server):
            raise ConnectionRefusedError("nobody listens")

    def reset(self, *, seed=None, options=None):
        self.connect()
        return super().reset(seed=seed, options=options)


class Stumbling(Maze):
    """Ends its process in those constructors, counted over all processes, that `dies` has."""

    def __init__(self, size, calls, dies):
        super().__init__(size)
        with open(calls, "ab", buffering=0) as file:
            file.write(b"x")
            if file.tell() in dies:
                print("it stumbles", flush=True)
                os._exit(3)


class Slow(Maze):
    """Waits for ever with action 6."""

    def step(self, action):
        while action == 6:
            time.sleep(1)
        return self._shown(), 1.0, False, False, {}
