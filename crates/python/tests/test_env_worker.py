"""The worker that steps Python envs for a host in Rust does what Gymnasium's SyncVectorEnv does."""

from __future__ import annotations

import json
import mmap
import os
import queue
import struct
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rollhouse import env_worker
from rollhouse.lane_words import ANEW, CALL_LANE, CLOSE, LOST, NOTHING, PLACED, RESET, SEEDED, STEP, TERMINATED, TRUNCATED, WORK

PLACES = {"reward": 8, "verdict": 496, "action": 16, "observation": [128, 256, 320, 384], "generator": None}
RECORD: dict[str, Any] = {"stride": 512, **PLACES}
GENERATOR = 448


class Driven:
    """A worker that a test drives by hand: its program in a thread, and the link to its host."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        env: str,
        lanes: int,
        allow: list[str],
        columns: int = 1,
        declared: bool | None = None,
        tried: list[dict[str, Any]] | None = None,
        **kwargs: Any,
    ):
        record = RECORD | {"observation": RECORD["observation"][:columns]}
        self._hello = {"env": env, "kwargs": kwargs, "deterministic": declared, "lanes": lanes, "allow": allow}
        self._hello["connect"] = {"retries": 3, "within": 60.0}
        self._hello |= {"action_mask": None, "infos": None, "frames_every": 0, "options": tried or [], "draw": False, "picture": False}
        self._hello["record"] = record | {"generator": GENERATOR if env.endswith("Seeded") else None}
        self.lanes, self.number = lanes, 0
        self.retries: list[int] = []
        self._told: queue.Queue[Any] = queue.Queue()
        self._said: queue.Queue[Any] = queue.Queue()
        monkeypatch.setattr(env_worker, "WorkerLink", lambda host: self)
        self._thread = threading.Thread(target=env_worker.main, args=(1,), daemon=True)
        self._thread.start()
        self.answer = json.loads(self._said.get(timeout=60))

    # The worker's side, as `WorkerLink` has it.

    def hello(self) -> bytes:
        return json.dumps(self._hello).encode()

    def ready(self, answer: bytes) -> tuple[int, int, int]:
        self._said.put(answer)
        return self._told.get()

    def receive(self) -> tuple[int, bytes]:
        return self._told.get()

    def publish(self, offset: int, number: int) -> None:
        self.memory[offset : offset + 8] = number.to_bytes(8, "little")

    def connecting(self, retries: int) -> None:
        self.retries.append(retries)

    def reply(self, code: int, payload: bytes) -> None:
        self._said.put(payload)

    # The host's side.

    def begin(self) -> None:
        descriptor = os.memfd_create("test")
        length = self.lanes * RECORD["stride"]
        os.ftruncate(descriptor, length)
        self.memory = mmap.mmap(descriptor, length)
        self._told.put((descriptor, 0, length))

    def work(
        self, tasks: list[int], seeds: list[int] | None = None, options: dict[int, Any] | None = None
    ) -> tuple[list[int], dict[str, str]]:
        """Gives a command. Returns for each lane how it answered (-1: not at all), and what was said."""
        self.number += 1
        payload = bytes(tasks) + struct.pack(f"<{self.lanes}Q", *(seeds or [0] * self.lanes))
        for lane, given in (options or {}).items():
            words = json.dumps(given).encode()
            payload += struct.pack("<II", lane, len(words)) + words
        self._told.put((self.number << 8 | WORK, payload))
        said = self._said.get(timeout=60)
        numbers = [self.value(lane, 0, "uint64") for lane in range(self.lanes)]
        answers = [int(n) & 0xFF if int(n) >> 8 == self.number else -1 for n in numbers]
        return answers, json.loads(said)["lost"] if said else {}

    def call(self, lane: int, method: str, payload: str) -> dict[str, str]:
        """Calls a method of a lane's env."""
        self._told.put((CALL_LANE, json.dumps({"lane": lane, "method": method, "payload": payload}).encode()))
        return json.loads(self._said.get(timeout=60))

    def end(self) -> None:
        self._told.put((CLOSE, b""))
        self._thread.join(60)

    def value(self, lane: int, at: int, dtype: str, shape: tuple[int, ...] = ()) -> np.ndarray:
        return np.ndarray(shape, dtype, self.memory, lane * RECORD["stride"] + at)


def test_the_same_seeds_and_actions_give_the_same_bits_as_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes, steps = 3, 120
    driven = Driven(monkeypatch, "gymnasium:CartPole-v1", lanes, ["gymnasium"])
    assert driven.answer["made"]["max_episode_steps"] == 500
    driven.begin()
    envs = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * lanes, autoreset_mode=AutoresetMode.NEXT_STEP
    )
    wanted, _ = envs.reset(seed=[5, 6, 7])
    assert driven.work([SEEDED] * lanes, [5, 6, 7]) == ([0] * lanes, {})
    rng = np.random.default_rng(1)
    over = np.zeros(lanes, bool)
    ends = 0
    for _ in range(steps):
        for lane in range(lanes):
            assert driven.value(lane, 128, "float32", (4,)).tobytes() == wanted[lane].tobytes()
        actions = rng.integers(0, 2, lanes)
        for lane in range(lanes):
            driven.value(lane, 16, "int64")[...] = actions[lane]
        answers, said = driven.work([RESET if over[lane] else STEP for lane in range(lanes)])
        wanted, rewards, terminated, truncated, _ = envs.step(actions)
        assert [a & TERMINATED != 0 for a in answers] == terminated.tolist() and not truncated.any()
        assert [driven.value(lane, 8, "float64").item() for lane in range(lanes)] == rewards.tolist()
        over = terminated | truncated
        ends += over.sum()
    assert ends > lanes and not said
    driven.end()


def test_every_kind_of_column_is_written_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(monkeypatch, "hosted_lanes:Columns", 2, ["hosted_lanes"], columns=4)
    kinds = [space["kind"] for space in driven.answer["made"]["observation"]["spaces"]]
    assert kinds == ["box", "discrete", "multi_discrete", "multi_binary"]
    driven.begin()
    assert driven.work([NOTHING, SEEDED], [0, 3])[0] == [-1, 0]
    driven.value(1, 16, "float32", (2,))[...] = [0.25, -1.5]
    answers, _ = driven.work([NOTHING, STEP])
    assert answers == [-1, TRUNCATED]
    assert driven.value(1, 128, "float64", (2,)).tolist() == [0.25, -1.5]
    assert driven.value(1, 256, "int64").item() == 3
    assert driven.value(1, 320, "int64", (2,)).tolist() == [1, 2]
    assert driven.value(1, 384, "int8", (3,)).tolist() == [1, 0, 1]
    driven.end()


def test_texts_and_sequences_are_written_with_their_number_of_items(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(monkeypatch, "hosted_lanes:Telling", 1, ["hosted_lanes"], columns=4)
    text, sequence = driven.answer["made"]["observation"]["spaces"]
    assert text == {"kind": "text", "min_length": 1, "maximum": 4, "characters": "abc"}
    assert (sequence["kind"], sequence["maximum"], sequence["stack"]) == ("sequence", 3, False)
    driven.begin()
    driven.work([SEEDED], [1])
    for action, codes, items in [(1, b"abca", [[1.5, -2], [2.5, -1], [3.5, 0]]), (0, b"ab\0\0", [[0, 0]] * 3)]:
        driven.value(0, 16, "int64")[...] = action
        assert driven.work([STEP]) == ([0], {})
        assert driven.value(0, 128, "uint8", (4,)).tobytes() == codes
        assert driven.value(0, 256, "int64").item() == len(codes.rstrip(b"\0"))
        assert driven.value(0, 320, "float32", (3, 2)).tolist() == items
        assert driven.value(0, 384, "int64").item() == (3 if action else 0)
    for action, words in enumerate(
        ("0: a text of 5, which may have 4", "0: a text with 'x'", "0: a bytes is no text", "1: a sequence of 4", "shape (3,)", "Cannot cast"),
        2,
    ):
        driven.value(0, 16, "int64")[...] = action
        answers, said = driven.work([STEP])
        assert answers == [LOST] and words in said["0"], said
        assert driven.work([ANEW], [1]) == ([0], {})
    driven.end()


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"shown": "did"}, "observation/did: Sequence(Discrete(3), stack=False) has no maximum"),
        ({"shown": "did", "maxima": {"": 4}}, "metadata[\"max_lengths\"]['did']"),
        ({"shown": "root", "maxima": {"did": 4}}, "metadata[\"max_lengths\"]['']"),
        ({"shown": "root", "maxima": 4}, "must be a dict"),
        ({"shown": "root", "maxima": {"": 0}}, "must be a number of at least 1"),
        ({"shown": "root", "maxima": {"": True}}, "must be a number of at least 1"),
        ({"shown": "nested", "maxima": {"": 4}}, "observation: a Sequence of Dict cannot be hosted"),
        ({"shown": "wide", "maxima": {"": 4}}, "observation: Discrete of uint64 cannot be hosted"),
        ({"shown": "half"}, "observation: a Text with characters that are no Unicode"),
        ({"taken": "half"}, "action: a Text with characters that are no Unicode"),
        ({"taken": "did", "maxima": {"did": 4}}, "metadata[\"max_action_lengths\"]['did']"),
        ({"taken": "did", "taken_maxima": {"": 4}}, "action/did: Sequence(Discrete(3), stack=False) has no maximum"),
        ({"taken": "nested", "taken_maxima": {"": 4}}, "action: a Sequence of Dict cannot be hosted"),
        ({"taken": "root", "taken_maxima": {"": 0}}, "metadata[\"max_action_lengths\"] has 0"),
    ],
    ids=str,
)
def test_texts_and_sequences_that_columns_cannot_have_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, kwargs: dict[str, Any], words: str
) -> None:
    driven = Driven(monkeypatch, "hosted_lanes:Listing", 1, ["hosted_lanes"], **kwargs)
    refused = driven.answer["refused"]
    assert refused["kind"] == "space_not_supported" and words in refused["message"], refused
    driven.end()


def test_an_env_that_fails_loses_its_lane_alone_and_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(monkeypatch, "hosted_lanes:Failing", 3, ["hosted_lanes"], at=2)
    driven.begin()
    assert driven.work([SEEDED] * 3, [1, 2, 3])[0] == [0] * 3
    assert driven.work([STEP] * 3)[0] == [0] * 3
    for lane in (1, 2):
        driven.value(lane, 16, "int64")[...] = lane
    answers, said = driven.work([STEP] * 3)
    assert answers == [0, LOST, LOST]
    assert "ValueError: enough" in said["1"] and "shape (3,)" in said["2"]
    assert driven.work([NOTHING, ANEW, ANEW], [0, 8, 9]) == ([-1, 0, 0], {})
    assert driven.value(1, 128, "float32", (2,)).tolist() == [8.0, 0.0]
    driven.end()


def test_envs_that_cannot_connect_try_again_and_tell_how_often(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = {"folder": str(tmp_path), "making": 2, "resetting": 3}
    driven = Driven(monkeypatch, "hosted_envs:ClientEnv", 2, ["hosted_envs"], **arguments)
    assert driven.answer["made"] and driven.retries == [1, 2, 0]
    driven.begin()
    # Both are refused, then the first one again; the second one resets meanwhile.
    assert driven.work([SEEDED, SEEDED], [1, 2]) == ([0, 0], {})
    assert driven.retries == [1, 2, 0, 1, 2, 0]
    driven.end()


def test_an_env_that_cannot_connect_is_refused_with_the_last_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driven = Driven(monkeypatch, "hosted_envs:ClientEnv", 0, ["hosted_envs"], folder=str(tmp_path), making=9)
    refused = driven.answer["refused"]
    assert refused["kind"] == "connect_failed" and "3 retries" in refused["message"]
    assert "ConnectionRefusedError: call 4 is refused" in refused["message"]
    (tmp_path / "made").unlink()
    # One that connects in its reset is looked at for action masks as it is learned.
    driven = Driven(monkeypatch, "hosted_envs:ClientEnv", 0, ["hosted_envs"], folder=str(tmp_path), resetting=9)
    assert "call 4 is refused" in driven.answer["refused"]["message"]


def test_a_lane_that_cannot_connect_is_lost_alone_and_others_go_on_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driven = Driven(monkeypatch, "hosted_envs:ClientEnv", 2, ["hosted_envs"], folder=str(tmp_path), resetting=5)
    driven.begin()
    (tmp_path / "reset").write_bytes(b"x" * 9)
    assert driven.work([SEEDED, SEEDED], [1, 2]) == ([0, 0], {})
    (tmp_path / "reset").unlink()
    answers, said = driven.work([RESET, STEP])
    assert answers == [LOST, 0] and list(said) == ["0"]
    assert "NotConnectedError: could not connect: 3 retries" in said["0"]
    assert driven.retries[-1] == 0
    driven.end()


def test_an_episode_begins_again_in_another_env_where_the_generator_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Driven(monkeypatch, "hosted_lanes:Seeded", 1, ["hosted_lanes"])
    assert first.answer["made"]["deterministic"] is True
    first.begin()
    first.work([SEEDED], [5])
    for _ in range(3):
        first.work([STEP])
    generator = np.random.default_rng(5)
    generator.normal(size=2)
    for _ in range(3):
        generator.integers(0, 9, dtype=np.int32)
        generator.uniform()
    # Three halves of words were drawn: one of them is left over.
    place = first.value(0, GENERATOR, "uint64", (5,)).tolist()
    state = generator.bit_generator.state
    assert place[0] | place[1] << 64 == state["state"]["state"] and place[2] | place[3] << 64 == state["state"]["inc"]
    assert place[4] == state["uinteger"] | 1 << 32
    first.work([RESET])
    wanted = first.value(0, 128, "float64", (2,)).tolist()
    assert wanted == generator.normal(size=2).tolist()

    again = Driven(monkeypatch, "hosted_lanes:Seeded", 1, ["hosted_lanes"])
    again.begin()
    for _ in range(2):
        # In an env that has played nothing, and in one made anew.
        again.value(0, GENERATOR, "uint64", (5,))[...] = place
        assert again.work([PLACED], [5]) == ([0], {})
        assert again.value(0, 128, "float64", (2,)).tolist() == wanted
        again.work([STEP])
    first.end()
    again.end()


def test_lanes_that_begin_an_episode_are_given_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Driven(monkeypatch, "hosted_lanes:Given", 3, ["hosted_lanes"])
    assert given.answer["made"]["options"] == [
        {"name": "size", "default": 1.5, "summary": "in m"},
        {"name": "at", "default": [0.0, 1.0], "summary": ""},
    ]
    given.begin()
    for tasks in ([SEEDED, SEEDED, NOTHING], [RESET, ANEW, NOTHING]):
        options = {lane: {"size": lane + 0.25, "at": [2.0, 3.0 + lane]} for lane in (0, 1)}
        assert given.work(tasks, options=options) == ([0, 0, -1], {})
        assert [given.value(lane, 128, "float32", (2,)).tolist() for lane in (0, 1)] == [[0.25, 3.0], [1.25, 4.0]]
        assert given.work([STEP, NOTHING, NOTHING]) == ([0, -1, -1], {})
    answers, said = given.work([NOTHING, NOTHING, SEEDED], options={2: {"size": -2.5, "at": [0.0, 1.0]}})
    assert answers == [-1, -1, LOST] and "ValueError: too small" in said["2"]
    given.end()
    for tried, refused in [([{"size": 2.0, "at": [0.0, 1.0]}], None), ([{"size": -2.0, "at": [0.0, 1.0]}], "size=-2.0")]:
        answer = Driven(monkeypatch, "hosted_lanes:Given", 0, ["hosted_lanes"], tried=tried).answer
        if refused is None:
            assert "made" in answer
        else:
            told = answer["refused"]
            assert (told["kind"], told["message"]) == ("options_refused", f"{refused}: ValueError: too small")


def test_an_env_is_called_by_the_methods_that_it_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(monkeypatch, "lamps:Lamp", 2, ["lamps"])
    told = {method["name"]: method for method in driven.answer["made"]["methods"]}
    assert told["dim"] == {
        "name": "dim",
        "summary": "sets the brightness",
        "changes": True,
        "params": '{"type": "number", "minimum": 0}',
        "max_per_second": 50,
    }
    assert not told["tell"]["changes"] and told["flicker"]["changes"]
    driven.begin()
    driven.work([SEEDED, SEEDED], [1, 2])
    assert driven.call(1, "dim", "4.5") == {"answer": driven.value(1, 128, "float64").item().__repr__()}
    assert driven.call(1, "tell", "null") == {"answer": '{"brightness":4.5}'}
    assert driven.call(1, "dim", "-1") == {"refused": "ValueError: -1 is less than nothing"}
    assert "no JSON" in driven.call(1, "dim", "{")["refused"]
    assert "is not JSON" in driven.call(1, "mumble", "")["refused"]
    assert "the bulb is broken" in driven.call(0, "break_it", "null")["lost"]
    driven.value(1, 16, "int64")[...] = 1
    assert driven.work([ANEW, STEP], [3, 0]) == ([0, 0], {})
    assert driven.value(1, 128, "float64").item() == 5.5
    driven.end()


def test_a_call_that_draws_tells_where_the_generator_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(monkeypatch, "lamps:SteadySeeded", 1, ["lamps"])
    driven.begin()
    driven.work([SEEDED], [5])
    before = driven.value(0, GENERATOR, "uint64", (5,)).tolist()
    driven.call(0, "tell", "")
    assert driven.value(0, GENERATOR, "uint64", (5,)).tolist() == before
    driven.call(0, "flicker", "")
    assert driven.value(0, GENERATOR, "uint64", (5,)).tolist() != before
    driven.end()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("hosted_lanes:OtherGenerator", "np_random is a MT19937"),
        ("gymnasium:Restless-v0", "registered with nondeterministic=True"),
    ],
)
def test_what_is_known_not_to_be_deterministic_is_refused_if_it_is_declared(
    monkeypatch: pytest.MonkeyPatch, env: str, words: str
) -> None:
    name = "Restless-v0"
    gymnasium.register(name, "hosted_lanes:Seeded", nondeterministic=True)
    try:
        driven = Driven(monkeypatch, env, 1, ["gymnasium", "hosted_lanes"], declared=True)
        refused = driven.answer["refused"]
        assert refused["kind"] == "not_deterministic" and words in refused["message"], refused
        driven.end()
        driven = Driven(monkeypatch, env, 1, ["gymnasium", "hosted_lanes"], declared=False)
        assert "deterministic" not in driven.answer["made"]
        driven.begin()
        driven.end()
    finally:
        del gymnasium.registry[name]


@pytest.mark.parametrize(
    ("env", "allow", "kwargs", "kind", "words"),
    [
        ("gymnasium:CartPole-v1", ["numpy"], {}, "not_allowed", "'gymnasium'"),
        ("hosted_lanes:Columns", ["gymnasium"], {}, "not_allowed", "'hosted_lanes'"),
        ("gymnasium:rollhouse/CartPole-v1", ["gymnasium"], {}, "not_allowed", "'rollhouse'"),
        ("gymnasium:Nowhere-v1", ["gymnasium"], {}, "import_failed", "Nowhere"),
        ("gymnasium:no_such_module:X-v1", ["gymnasium", "no_such_module"], {}, "import_failed", "no_such_module"),
        ("hosted_lanes:Nothing", ["hosted_lanes"], {}, "import_failed", "Nothing"),
        ("hosted_lanes:Columns", ["hosted_lanes"], {"color": 1}, "kwargs_refused", "color"),
        ("gymnasium:CartPole-v1", ["gymnasium"], {"max_episode_steps": 3}, "kwargs_refused", "max_episode_steps"),
        ("hosted_lanes:Unstable", ["hosted_lanes"], {}, "lanes_differ", "different spaces"),
        ("lamps:Odd", ["lamps"], {}, "methods_refused", "has no method 'fly'"),
        ("hosted_lanes:Broken", ["hosted_lanes"], {}, "make_failed", "never made"),
        ("hosted_lanes:dict", ["hosted_lanes"], {}, "import_failed", "dict"),
        ("gymnasium:CartPole-v1", ["gymnasium"], {"id": "Pendulum-v1"}, "kwargs_refused", "id"),
        ("gymnasium:hosted_lanes:CartPole-v1", ["gymnasium"], {}, "not_allowed", "'hosted_lanes'"),
        ("gymnasium:gymnasium.x:hosted_lanes:CartPole-v1", ["gymnasium"], {}, "import_failed", "no module"),
        ("doors.__main__:Ball", ["doors"], {}, "import_failed", "no module"),
        ("gymnasium:doors:doors/Foreign-v0", ["gymnasium", "doors"], {}, "not_allowed", "'balls'"),
        ("gymnasium:doors:doors/Beside-v0", ["gymnasium", "doors"], {}, "not_allowed", "'balls'"),
        ("doors:Foreign", ["gymnasium", "doors"], {}, "not_allowed", "'balls'"),
    ],
)
def test_what_cannot_be_hosted_is_refused_by_its_kind(
    monkeypatch: pytest.MonkeyPatch, env: str, allow: list[str], kwargs: dict[str, Any], kind: str, words: str
) -> None:
    driven = Driven(monkeypatch, env, 2, allow, **kwargs)
    refused = driven.answer["refused"]
    assert refused["kind"] == kind and words in refused["message"], refused
    driven.end()


@pytest.mark.parametrize(
    "env",
    [
        "gymnasium.envs.registration:load_env_creator",
        "gymnasium.envs.registration:make",
        "gymnasium.envs.registration:register_envs",
        "gymnasium.wrappers:RecordVideo",
        "gymnasium.vector:AsyncVectorEnv",
        "gymnasium:Env",
        "gymnasium:Env.reset",
        "doors:opened",
        "doors:env",
        "doors:Opener",
        "doors:Path",
        "doors:__builtins__",
    ],
)
def test_nothing_but_classes_of_envs_is_called_whatever_a_package_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, env: str
) -> None:
    # Symptom: `gymnasium.envs.registration:load_env_creator` with a name imported any module. Cause: whatever a package
    # had under a name was called, and what it gave was looked at afterwards. Fix: it is looked at before.
    trace = tmp_path / "trace"
    kwargs = {"path": str(trace)} if env.startswith("doors") else {"name": "trace:left"}
    driven = Driven(monkeypatch, env, 1, ["gymnasium", "doors"], **kwargs)
    assert driven.answer["refused"]["kind"] == "import_failed", driven.answer
    assert not trace.exists()
    driven.end()


@pytest.mark.parametrize("env", ["doors:Wrapped", "gymnasium:doors:doors/Opened-v0"])
def test_classes_of_envs_and_registered_functions_of_a_package_are_hosted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, env: str
) -> None:
    kwargs = {"path": str(tmp_path / "trace")} if env.endswith("v0") else {}
    driven = Driven(monkeypatch, env, 1, ["gymnasium", "doors"], **kwargs)
    assert "made" in driven.answer, driven.answer
    driven.begin()
    driven.end()
