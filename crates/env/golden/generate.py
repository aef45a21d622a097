"""Writes the golden data that the tests of this crate compare with: what Gymnasium and NumPy do.

    python -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python generate.py

Run in this folder; writes *.txt beside this script, the same bytes each time (on one version of NumPy and
one kind of CPU: NumPy's own sine and cosine differ in the last bit between machines, which is within the
tolerance of the tests).

Format: one record a line, tokens separated by blanks, `#` starts a comment line. A double is the 16 hex
digits of its bits, a single the 8 hex digits of its bits, an integer is decimal.

generator.txt
    words SEED W*            64-bit words of PCG64(SEED), hex
    mixed SEED K:W*          draws in order; K is 32 or 64, W hex
    uniform SEED LOW HIGH D* Generator.uniform(LOW, HIGH)
    advance SEED N W         the word after N others
trig.txt
    at X SIN SIN_REST COS COS_REST   the sum of value and rest has about 106 correct bits
<env>.txt
    space obs|action LOW* / HIGH*    bounds as singles (or `discrete N`)
    starts SEED STATE / STATE / ...  reset(seed=SEED), then resets without a seed
    options-start SEED NAME=D* : STATE
    step NAME=D* : STATE ACTION STATE OBS REWARD TERMINATED
                             one step from a state; the first group are options that are not default
    stream SEED              a seeded lane with the time limit and autoreset; then for each episode
    start STATE
    move ACTION OBS REWARD TERMINATED TRUNCATED
    stop                     the end of the stream
A STATE has the doubles of `BatchEnv::state`.
"""

import struct
import sys
from decimal import Decimal, getcontext
from pathlib import Path

import gymnasium as gym
import numpy as np

assert gym.__version__ == "1.4.0", gym.__version__
assert np.__version__.startswith("2."), np.__version__

HERE = Path(__file__).parent
SEEDS = [0, 1, 2, 3, 7, 42, 123, 1000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**53 - 1, 2**63, 2**64 - 1]
SEEDS += [int(s) for s in np.random.default_rng(2024).integers(0, 2**64, size=24, dtype=np.uint64)]


def d(x):
    return struct.pack(">d", float(x)).hex()


def s(x):
    return struct.pack(">f", float(x)).hex()


def ds(xs):
    return " ".join(d(x) for x in xs)


def ss(xs):
    return " ".join(s(x) for x in xs)


def write(name, lines):
    path = HERE / name
    header = f"# written by generate.py with gymnasium {gym.__version__}; do not edit"
    path.write_text("\n".join([header, *lines]) + "\n")
    print(f"{name}: {len(lines)} records, {path.stat().st_size} bytes", file=sys.stderr)


# ---------------------------------------------------------------- generator


def generator():
    for seed in SEEDS:
        words = np.random.PCG64(seed).random_raw(8)
        yield f"words {seed} " + " ".join(f"{int(w):x}" for w in words)
    for seed in SEEDS[:8]:
        bits = np.random.PCG64(seed)
        interface = bits.ctypes
        tokens = []
        for width in [32, 32, 32, 64, 32, 64, 64, 32, 32, 32, 32]:
            draw = interface.next_uint32 if width == 32 else interface.next_uint64
            tokens.append(f"{width}:{int(draw(interface.state_address)):x}")
        yield f"mixed {seed} " + " ".join(tokens)
    for seed in SEEDS[:12]:
        for low, high in [(-0.05, 0.05), (-0.6, -0.4), (0.0, 1.0), (-np.pi, np.pi), (1e300, 1e300), (-1e-300, 2e-300)]:
            values = np.random.default_rng(seed).uniform(low, high, size=4)
            yield f"uniform {seed} {d(low)} {d(high)} {ds(values)}"
    for seed in SEEDS[:8]:
        for n in [0, 1, 2, 63, 64, 1000, 12345, 2**32 + 5, 2**63 + 12345, 2**64 - 1]:
            bits = np.random.PCG64(seed)
            bits.advance(n)
            yield f"advance {seed} {n} {int(bits.random_raw()):x}"


# ---------------------------------------------------------------- sine and cosine


def pi_digits():
    """pi by Machin's formula."""

    def arctan_inverse(n):
        term = Decimal(1) / n
        total, k = term, 1
        while abs(term) > Decimal(10) ** -(getcontext().prec + 2):
            term /= -n * n
            k += 2
            total += term / k
        return total

    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


def sin_cos(x, pi):
    """Sine and cosine of a float to the context's precision."""
    x = Decimal(x)
    quarter = (x / (pi / 2)).to_integral_value()
    r = x - quarter * (pi / 2)
    sin, cos, term, k = Decimal(0), Decimal(0), Decimal(1), 0
    while abs(term) > Decimal(10) ** -100:
        sign = 1 if k % 4 < 2 else -1
        if k % 2 == 0:
            cos += sign * term
        else:
            sin += sign * term
        k += 1
        term *= r / k
    for _ in range(int(quarter) % 4):
        sin, cos = cos, -sin
    return sin, cos


def trig():
    getcontext().prec = 120
    pi = pi_digits()
    rng = np.random.default_rng(5)
    xs = [np.pi / 4, np.nextafter(np.pi / 4, 1), np.nextafter(np.pi / 4, 0), 1e-300, 5e-324, 2.0**-27, 2.0**20]
    xs += [k * np.pi / 2 for k in [1, 2, 3, 4, 5, 100, 12345, 600000, 667543]]
    xs += list(rng.uniform(-np.pi / 4, np.pi / 4, size=300))
    xs += list(rng.uniform(-10, 10, size=300))
    xs += list(rng.uniform(-1000, 1000, size=200))
    xs += list(rng.uniform(-(2.0**20), 2.0**20, size=200))
    xs += list(10.0 ** rng.uniform(-20, 6, size=200))
    for x in xs:
        tokens = [d(x)]
        for exact in sin_cos(float(x), pi):
            value = float(exact)
            tokens += [d(value), d(float(exact - Decimal(value)))]
        yield "at " + " ".join(tokens)


# ---------------------------------------------------------------- envs


class Adapter:
    """One env: how its state is read and set in the layout of `BatchEnv::state`."""

    id = ""
    reset_options = ()

    def make(self, limited=False, **kwargs):
        env = gym.make(self.id, disable_env_checker=True, **kwargs)
        return env if limited else env.unwrapped

    def get(self, env):
        return [float(x) for x in env.unwrapped.state]

    def set(self, env, state):
        env.unwrapped.state = np.array(state, dtype=np.float64)

    def action(self, action):
        return str(int(action))

    def value(self, action):
        return int(action)

    def run(self, option, state, action):
        """One `step` record."""
        env = self.make(**option)
        env.reset(seed=0)
        self.set(env, state)
        state = self.get(env)
        obs, reward, terminated, _, _ = env.step(self.value(action))
        options = " ".join(f"{name}={d(value)}" for name, value in option.items())
        return (
            f"step {options} : {ds(state)} {self.action(action)} {ds(self.get(env))} {ss(obs)} "
            f"{d(reward)} {int(terminated)}"
        )

    def records(self):
        env = self.make()
        for name, space in [("obs", env.observation_space), ("action", env.action_space)]:
            if isinstance(space, gym.spaces.Discrete):
                yield f"space {name} discrete {space.n}"
            else:
                assert space.dtype == np.float32
                yield f"space {name} {ss(space.low)} / {ss(space.high)}"
        yield f"limit {gym.spec(self.id).max_episode_steps}"
        for seed in SEEDS:
            env.reset(seed=seed)
            states = [ds(self.get(env))]
            for _ in range(4):
                env.reset()
                states.append(ds(self.get(env)))
            yield f"starts {seed} " + " / ".join(states)
        for options in self.reset_options:
            env.reset(seed=11, options=options)
            tokens = " ".join(f"{name}={d(value)}" for name, value in options.items())
            yield f"options-start 11 {tokens} : {ds(self.get(env))}"
        for option, state, action in self.steps(np.random.default_rng(99)):
            yield self.run(option, state, action)
        yield from self.long_runs()
        for seed, policy, episodes, most in self.streams():
            yield from self.stream(seed, policy, episodes, most)

    def long_runs(self):
        return []

    def follow(self, seed, policy, most):
        """A run of `step` records, each from the state before."""
        env = self.make()
        obs, _ = env.reset(seed=seed)
        for t in range(most):
            action = policy(t, obs, env)
            state = self.get(env)
            obs, reward, terminated, _, _ = env.step(self.value(action))
            yield (
                f"step : {ds(state)} {self.action(action)} {ds(self.get(env))} {ss(obs)} "
                f"{d(reward)} {int(terminated)}"
            )
            if terminated:
                break

    def stream(self, seed, policy, episodes, most):
        env = self.make(limited=True)
        obs, _ = env.reset(seed=seed)
        yield f"stream {seed}"
        for episode in range(episodes):
            if episode > 0:
                obs, _ = env.reset()
            yield f"start {ds(self.get(env))}"
            for t in range(most):
                action = policy(t, obs, env)
                obs, reward, terminated, truncated, _ = env.step(self.value(action))
                yield f"move {self.action(action)} {ss(obs)} {d(reward)} {int(terminated)} {int(truncated)}"
                if terminated or truncated:
                    break
        yield "stop"


def random_actions(seed, n):
    rng = np.random.default_rng(seed)
    return lambda t, obs, env: int(rng.integers(n))


class CartPole(Adapter):
    id = "CartPole-v1"
    reset_options = [{"low": -0.1, "high": 0.1}, {"low": 0.0, "high": 0.0}, {"low": -1.0, "high": 2.0}]

    def get(self, env):
        return [*map(float, env.unwrapped.state)]

    def set(self, env, state):
        env.state = np.array(state, dtype=np.float64)
        env.steps_beyond_terminated = None

    def steps(self, rng):
        for k in range(240):
            yield {}, [*rng.uniform([-2.4, -3, -0.21, -3], [2.4, 3, 0.21, 3])], k % 2
        for k in range(60):
            x, theta = 2.4 * (-1) ** k, 12 * 2 * np.pi / 360 * (-1) ** (k // 2)
            near = rng.uniform(-1e-6, 1e-6)
            state = [x + near, 0.0, 0.0, 0.1] if k % 3 else [0.0, 0.1, theta + near, 0.0]
            yield {"sutton_barto_reward": k % 5 == 0}, state, k % 2
        for k in range(12):
            yield {"sutton_barto_reward": k % 2 == 0}, [*rng.uniform(-0.4, 0.4, size=4)], k // 2 % 2
        for k in range(30):
            yield {}, [*rng.uniform(-40, 40, size=4)], k % 2

    def long_runs(self):
        # Step by step, because an upright pole amplifies the last bit a hundredfold each second.
        for seed in [3, 4]:
            yield from self.follow(seed, self.balance, 500)

    @staticmethod
    def balance(t, obs, env):
        x, x_dot, theta, theta_dot = env.unwrapped.state
        return int(0.1 * x + 0.3 * x_dot + 3.0 * theta + 1.0 * theta_dot > 0)

    def streams(self):
        for seed in [0, 5, 2**53 - 1]:
            yield seed, random_actions(seed % 1000, 2), 8, 10**6


class MountainCar(Adapter):
    id = "MountainCar-v0"
    reset_options = [{"low": -0.7, "high": 0.5}]

    def steps(self, rng):
        for k in range(240):
            yield {}, list(rng.uniform([-1.2, -0.07], [0.6, 0.07])), k % 3
        for k in range(60):
            position = [-1.2, 0.5, 0.6][k % 3] + rng.uniform(-0.04, 0.04)
            yield {"goal_velocity": 0.03 * (k % 2)}, [min(max(position, -1.2), 0.6), rng.uniform(-0.07, 0.07)], k % 3
        for k in range(20):
            yield {}, list(rng.uniform([-300, -0.07], [300, 0.07])), k % 3

    @staticmethod
    def pump(t, obs, env):
        return 2 if env.unwrapped.state[1] >= 0 else 0

    def streams(self):
        yield 1, random_actions(1, 3), 2, 10**6
        yield 2, self.pump, 3, 10**6


class MountainCarContinuous(Adapter):
    id = "MountainCarContinuous-v0"
    reset_options = [{"low": -0.7, "high": 0.5}]

    def get(self, env):
        state = env.unwrapped.state
        return [*map(float, state), float(state.dtype == np.float32)]

    def set(self, env, state):
        env.unwrapped.state = np.array(state[:2], dtype=np.float32 if state[2] else np.float64)

    def action(self, action):
        return s(action)

    def value(self, action):
        return np.array([action], dtype=np.float32)

    def steps(self, rng):
        bounds = [0.0, 1.0, -1.0, 1.5, -3.0]
        for k in range(300):
            action = bounds[k % 10] if k % 10 < 5 else rng.uniform(-1, 1)
            yield {}, [*rng.uniform([-1.2, -0.07], [0.6, 0.07]), float(k % 3 > 0)], action
        for k in range(150):
            position = [-1.2, 0.45, 0.6][k % 3] + rng.uniform(-0.04, 0.04)
            position = min(max(position, -1.2), 0.6)
            action = rng.uniform(-1.5, 1.5)
            goal = [0.0, 0.03, 0.07, 0.0700000001, -0.01][k % 5]
            yield {"goal_velocity": goal}, [position, rng.uniform(-0.08, 0.08), float(k % 4 > 0)], action

    def streams(self):
        rng = np.random.default_rng(6)
        pump = lambda t, obs, env: 1.0 if env.unwrapped.state[1] >= 0 else -1.0
        mixed = lambda t, obs, env: np.float32(rng.uniform(-1, 1)) if t % 2 else pump(t, obs, env)
        yield 3, pump, 3, 10**6
        yield 4, mixed, 2, 10**6
        yield 5, lambda t, obs, env: np.float32(rng.uniform(-1, 1)), 1, 10**6


class Pendulum(Adapter):
    id = "Pendulum-v1"
    reset_options = [{"x_init": np.pi / 2, "y_init": 0.5}, {"x_init": 0.0, "y_init": 3.0}]

    def action(self, action):
        return s(action)

    def value(self, action):
        return np.array([action], dtype=np.float32)

    def steps(self, rng):
        bounds = [0.0, 2.0, -2.0, 2.5, -7.0]
        for k in range(320):
            option = {"g": 9.81} if k % 7 == 0 else {}
            action = bounds[k % 10] if k % 10 < 5 else rng.uniform(-2, 2)
            spread = [3.2, 20.0, 5000.0][k % 3]
            yield option, [rng.uniform(-spread, spread), rng.uniform(-8, 8)], action
        for k in range(24):
            yield {}, [(-1) ** k * np.pi * (1 + k // 4) + rng.uniform(-1, 1) * 1e-15, rng.uniform(-8, 8)], 0.5

    def streams(self):
        for seed in [6, 7]:
            rng = np.random.default_rng(seed)
            yield seed, lambda t, obs, env: np.float32(rng.uniform(-2, 2)), 2, 10**6


class Acrobot(Adapter):
    id = "Acrobot-v1"
    reset_options = [{"low": -0.5, "high": 0.25}]

    def steps(self, rng):
        for k in range(300):
            high = np.array([np.pi, np.pi, 4 * np.pi, 9 * np.pi]) * [1.0, 0.3, 0.05][k % 3]
            yield {}, list(rng.uniform(-high, high)), k % 3

    def long_runs(self):
        yield from self.follow(9, self.pump, 500)
        yield from self.follow(10, random_actions(10, 3), 400)

    @staticmethod
    def pump(t, obs, env):
        return 2 if env.unwrapped.state[2] < 0 else 0

    def streams(self):
        yield 12, random_actions(12, 3), 3, 60


def main():
    write("generator.txt", list(generator()))
    write("trig.txt", list(trig()))
    for adapter in [CartPole(), MountainCar(), MountainCarContinuous(), Pendulum(), Acrobot()]:
        write(f"{adapter.id}.txt", list(adapter.records()))


if __name__ == "__main__":
    main()
