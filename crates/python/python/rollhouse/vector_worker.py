"""A worker of a host in Rust whose lanes step together: they are those of a vector env of another package."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse import leaving_out
from rollhouse.connecting import Connector
from rollhouse.env_worker import OWNED, Refused, Worker, check_allowed, load, package_of
from rollhouse.env_methods import MAX_WORDS, words
from rollhouse.foreign_vector import ForeignVector, Rows, lane_of, tasks_of
from rollhouse.hosted.columns import Columns
from rollhouse.hosted.infos import joined
from rollhouse.info_layout import lane_info
from rollhouse.lane_words import LOST, NOTHING, TERMINATED, TRUNCATED
from rollhouse.masks import flat
from rollhouse.said import info_of
from rollhouse.vector_maker import OWN_MAKER, VectorMaker

OURS = {"num_envs", "autoreset_mode", "vectorization_mode", "vector_kwargs", "wrappers", leaving_out.ARGUMENT} | (OWNED - {"max_episode_steps"})
"""Arguments that are not the caller's to give."""


class LaneOfVector(gymnasium.Env):
    """What a lane of a vector env looks like: by it the lanes are described, and by one of a single lane they are tried."""

    def __init__(self, foreign: ForeignVector):
        vector = foreign.vector
        self.foreign = foreign
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space
        own = ("options", "methods", "deterministic", "autoreset_mode")
        self.metadata = {name: value for name, value in dict(vector.metadata).items() if name not in own}
        self.render_mode = getattr(vector, "render_mode", None)
        self._actions = Columns(self.action_space, 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the vector env, and returns the row of its first lane; seeds are those of lanes that play."""
        observations, infos = self.foreign.vector.reset()
        return lane_of(observations, 0), self._info(infos)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps the vector env of one lane, and returns its row."""
        given = [np.asarray(array)[np.newaxis] for array in self._parts(action)]
        observations, rewards, terminations, truncations, infos = self.foreign.vector.step(self._actions.batch(given, ()))
        return lane_of(observations, 0), rewards[0], terminations[0], truncations[0], self._info(infos)

    def close(self) -> None:
        """Closes the vector env."""
        self.foreign.put_away()

    def _parts(self, action: Any) -> list[Any]:
        rows: list[Any] = [np.zeros(shape, dtype) for shape, dtype in zip(self._actions.shapes, self._actions.dtypes, strict=True)]
        self._actions.write(rows, [], action)
        return rows

    def _info(self, infos: Any) -> dict[str, Any]:
        count = self.foreign.count
        return lane_info(joined([(0, count, info_of(infos))], count), 0)


class VectorWorker(Worker):
    """The lanes of this process, of one vector env."""

    @classmethod
    def envs_of(cls, hello: dict[str, Any], connector: Connector) -> list[Any]:
        """Makes the vector env, and as many looks at it as it has lanes."""
        lane = LaneOfVector(connector.make(lambda: made(hello)))
        return [lane] * lane.foreign.count

    def set_up(self, record: dict[str, Any]) -> None:
        """Finds the lanes' records in the memory that the host shares with this process."""
        super().set_up(record)
        self.foreign: ForeignVector = self.envs[0].foreign
        self.action_batch = Columns(self.envs[0].action_space, self.count)

    def work(self, number: int, payload: bytes) -> bytes:
        """Does what the lanes are told, all at once. Returns the words of those that are lost, which are all then."""
        lanes = [lane for lane in range(self.count) if payload[lane] != NOTHING]
        said: dict[int, str] = {}
        try:
            rows, began = self.foreign.do(tasks_of(payload, self.count), self.actions_taken)
            flags = self.write(rows, began).tolist()
        except Exception as error:
            self.foreign.put_away()
            flags, said = [LOST] * self.count, dict.fromkeys(lanes, f"their vector env failed: {type(error).__name__}"[:MAX_WORDS])
            # Once is enough for all of it.
            said[lanes[0]] = words(error)
        self.link.publish_all([(self.places[lane], number << 8 | flags[lane]) for lane in lanes])
        return self.packed_later(said)

    def actions_taken(self) -> Any:
        """Returns a batch of the lanes' actions: copies, for the vector env may keep them."""
        rows = self.actions.astype(self.action_dtype)
        return self.action_batch.batch([rows] if self.parts is None else self.parts.split(rows), ())

    def write(self, rows: Rows, began: np.ndarray) -> np.ndarray:
        """Writes the rows of all lanes to their records. Returns how each answers."""
        observations, rewards, terminations, truncations, given = rows
        infos = info_of(given)
        self.rewards[...] = rewards
        if "result" in infos or "score" in infos or self.verdicts.told:
            for lane in np.flatnonzero(~began).tolist():
                self.verdicts.tell(lane, {name: infos[name][lane] for name in ("result", "score") if name in infos})
        if self.infos is not None:
            self.infos.step_all(infos, began)
        if self.mask_by is not None:
            for lane in range(self.count):
                self.mask(lane, {name: lane_of(infos[name], lane) for name in ("action_mask",) if name in infos})
        arrays = self.foreign.columns.arrays_of(observations)
        for column, array in zip(self.batch_rows, arrays, strict=True):
            if not np.can_cast(array.dtype, column.dtype, "same_kind"):
                raise TypeError(f"observations of dtype {array.dtype} do not become {column.dtype}")
            column[...] = array
        return np.where(terminations, TERMINATED, 0) | np.where(truncations, TRUNCATED, 0)

    def render(self, lane: int) -> bytes:
        """Returns words about why a lane is not drawn."""
        return f"the lanes of {self.hello['env']} step together, and none is drawn by itself".encode()


def made(hello: dict[str, Any]) -> ForeignVector:
    """Makes the vector env of a worker's lanes, of one lane where they are described.

    Raises:
        Refused: The import is outside of the list, or what is named is no vector env that nodes host.
    """
    name, allow, kwargs = hello["env"], hello["allow"], hello["kwargs"]
    owned = sorted(OURS & kwargs.keys())
    if owned:
        raise Refused("kwargs_refused", f"{', '.join(owned)}: not an argument that can be given")

    def load_allowed(module: str) -> Any:
        check_allowed(module, allow)
        return load(module)

    def check(called: Any) -> None:
        if isinstance(called, str):
            return check_allowed(called, allow)
        made_by = getattr(called, "__module__", None) or ""
        is_class = isinstance(called, type) and issubclass(called, gymnasium.vector.VectorEnv) and package_of(made_by) != "gymnasium"
        if not is_class and not (inspect.isfunction(called) and called.__name__ == OWN_MAKER):
            raise Refused("import_failed", f"{name} is neither a class of vector envs nor an id that its package makes them of")
        return check_allowed(made_by, allow)

    maker, count = VectorMaker(name, kwargs), max(1, hello["lanes"])
    try:
        foreign = ForeignVector(name, lambda seeds: maker(count, None, seeds, load_allowed, check), lambda: maker.seeded)
        foreign.check_spaces()
    except AttributeError as error:
        raise Refused("import_failed", words(error)) from error
    if foreign.mode is not AutoresetMode.NEXT_STEP:
        raise Refused("make_failed", f"the lanes of {name} step together, with {foreign.mode.value}: nodes have {AutoresetMode.NEXT_STEP.value} of those")
    return foreign
