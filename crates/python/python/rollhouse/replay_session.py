"""Recorded episodes that a node of a cluster shows, and that are sought and played there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rollhouse.action_parts import ActionParts
from rollhouse.native_env import make_space

if TYPE_CHECKING:
    from rollhouse import _native


class ReplaySession:
    """A recorded episode as a session with one lane: it stands at one step, the same for all that watch it.

    ``Cluster.open_replay`` makes it, paused at the reset, which is step 0. It is kept on its node until it is closed, or
    this process ends; ``rollhouse watch`` shows it to others meanwhile, who may move it too. One thread at a time.

    Attributes:
        name: The episode.
        session: The session, as ``rollhouse sessions`` and ``rollhouse watch`` name it.
        env_spec: The env, as it was recorded.
        observation_space, action_space: Its spaces.
    """

    def __init__(self, native: _native.NativeReplay, name: str, session: str, spec: dict[str, Any]):
        self.name = name
        self.session = session
        self.env_spec = spec
        self.observation_space = make_space(spec["observation_space"])
        self.action_space = make_space(spec["action_space"])
        self._native = native
        self._frame: dict[str, Any] = {}
        self.refresh()

    def refresh(self) -> ReplaySession:
        """Asks where it stands now, after it has played or others have moved it. Moves nothing."""
        frame = self._native.look(0, 0.0)
        if frame is not None:
            self._frame = frame
        return self

    def seek(self, step: int) -> Any:
        """Goes to a step, which may lie behind. Returns the observation there.

        Raises:
            ValueError: The episode is shorter.
            ClusterError: The session has ended; the message says why.
        """
        return self._moved(self._native.seek(_not_negative("step", step)))

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Goes to the reset. Returns observation and info, as an env does."""
        return self.seek(0), {}

    def step(self, action: Any = None) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Goes one step on. Returns what was recorded, as an env does, whatever ``action`` is. At the last step it
        stays.
        """
        del action
        self._moved(self._native.step(1))
        return self.observation, self.reward, self.terminated, self.truncated, {}

    def back(self, steps: int = 1) -> Any:
        """Goes so many steps back, to the reset at most. Returns the observation there."""
        return self._moved(self._native.step(-_not_negative("steps", steps)))

    def play(self, speed: float = 1.0) -> None:
        """Plays 30 steps a second at speed 1; from the reset on if it stands at the end.

        Raises:
            ValueError: ``speed`` is not from 1/16 to 64.
        """
        self._moved(self._native.play(float(speed)))

    def pause(self) -> Any:
        """Stops playing. Returns the observation of the step at which it stands then."""
        return self._moved(self._native.pause())

    def frames(self, timeout: float = 10.0) -> Iterator[ReplaySession]:
        """Yields itself each time that it has moved on, until it stands at its last step, or still for ``timeout``
        seconds (10 at most). If steps follow each other fast, some are left out.
        """
        yield self
        while self.state != "over":
            frame = self._native.look(self._frame["serial"], float(timeout))
            if frame is None:
                return
            self._frame = frame
            yield self

    def render(self, size: Sequence[int] | None = None) -> np.ndarray:
        """Draws a picture of the last known step, RGB, in the env's own size or ``size`` (width, height).

        Raises:
            ClusterError: The env draws none, or is not in this program.
        """
        return self._native.render(None if size is None else (int(size[0]), int(size[1])))

    @property
    def observation(self) -> Any:
        """The observation of the last known step."""
        return _value(self.env_spec["observation_space"], self.observation_space, memoryview(self._frame["obs"]))[0]

    @property
    def action(self) -> Any:
        """The action that led to that step; None at the reset."""
        taken = memoryview(self._frame["action"])
        if not len(taken):
            return None
        if ActionParts.has(self.action_space):
            parts = ActionParts(self.action_space)
            return parts.action(np.frombuffer(taken, parts.dtype))
        return _value(self.env_spec["action_space"], self.action_space, taken)[0]

    @property
    def reward(self) -> float:
        """The reward of that action; 0 at the reset."""
        return self._frame["reward"]

    @property
    def total_reward(self) -> float:
        """The sum of rewards up to that step."""
        return self._frame["total_reward"]

    @property
    def terminated(self) -> bool:
        """Whether the episode came to a terminal state at that step."""
        return self._frame["terminated"]

    @property
    def truncated(self) -> bool:
        """Whether a limit cut it at that step."""
        return self._frame["truncated"]

    @property
    def position(self) -> int:
        """The number of the last known step; 0 is the reset."""
        return self._frame["step"]

    @property
    def state(self) -> str:
        """``"paused"``, ``"replaying"``, or ``"over"`` at the last step."""
        return self._frame["state"]

    @property
    def speed(self) -> float:
        """The speed at which it plays when it does."""
        return self._frame["speed"]

    def __len__(self) -> int:
        return self._frame["length"]

    def close(self) -> None:
        """Ends the session, for all that watch it. Closing again does nothing."""
        self._native.close()

    def _moved(self, frame: dict[str, Any]) -> Any:
        self._frame = frame
        return self.observation

    def __enter__(self) -> ReplaySession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ReplaySession({self.name!r}, step {self.position} of {len(self)}, {self.state})"


def _not_negative(name: str, value: int) -> int:
    if value < 0:
        raise ValueError(f"{name}={value!r} must be 0 or more")
    return int(value)


def _value(told: dict[str, Any], space: Any, data: memoryview) -> tuple[Any, memoryview]:
    """Reads a value of the space from the beginning of its columns' bytes. Returns it and the bytes behind it.

    Args:
        told: The space as the native half describes it.
        space: The same as Gymnasium has it.
        data: The bytes.
    """
    if told["kind"] == "dict":
        parts = {}
        for name, part in told["spaces"]:
            parts[name], data = _value(part, space[name], data)
        return parts, data
    if told["kind"] == "tuple":
        values = []
        for part, child in zip(told["spaces"], space.spaces, strict=True):
            value, data = _value(part, child, data)
            values.append(value)
        return tuple(values), data
    if told["kind"] == "text":
        narrow = max(told["characters"], default="") <= "\xff"
        items, count, data = _counted(told["max_length"], 1 if narrow else 4, data)
        return bytes(items).decode("latin-1" if narrow else "utf-32-le", "replace"), data
    if told["kind"] == "sequence":
        item, column = space.feature_space, _column_dtype(told["item"])
        items, count, data = _counted(told["maximum"], _bytes_of(item, column), data)
        array = np.frombuffer(items, column).reshape(count, *(item.shape or ())).astype(item.dtype)
        return (array if space.stack else tuple(array)), data
    column = _column_dtype(told)
    size = _bytes_of(space, column)
    array = np.frombuffer(data[:size], column).reshape(space.shape).astype(space.dtype)
    return (array if space.shape else array[()]), data[size:]


def _counted(maximum: int, size: int, data: memoryview) -> tuple[memoryview, int, memoryview]:
    """Returns the items of a text or a sequence that are there, of ``size`` bytes each, their number, and what is behind."""
    end = maximum * size
    count = min(max(int.from_bytes(data[end : end + COUNT_BYTES], "little", signed=True), 0), maximum)
    return data[: count * size], count, data[end + COUNT_BYTES :]


def _column_dtype(told: dict[str, Any]) -> np.dtype:
    """Returns the dtype of a plain space's column, which may be wider than the space's."""
    return np.dtype(told.get("dtype", np.int64))


def _bytes_of(space: Any, column: np.dtype) -> int:
    return int(np.prod(space.shape or (), dtype=np.int64)) * column.itemsize


COUNT_BYTES = 8
"""Bytes of the number of items."""
