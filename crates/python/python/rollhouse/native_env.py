"""The common part of vector envs of built-in envs, wherever their lanes run."""

from __future__ import annotations

import difflib
import json
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rollhouse import _native
from rollhouse.action_parts import ActionParts
from rollhouse.carried import kept
from rollhouse.counted import BoundedSequence
from rollhouse.errors import ActionTypeError, ClosedError, InvalidActionError, OptionsError, UnknownOptionError
from rollhouse.events import Events
from rollhouse.vector import Step, VectorEnv

NAMESPACE = "rollhouse/"
"""What built-in envs are called in Gymnasium's registry, before their own id."""


RENDER_FPS = 15
"""Steps that make up a second in a video of an env that is not built in here."""


class NativeVectorEnv(VectorEnv):
    """N lanes of a built-in env, whose arrays the native half makes.

    With ``copy=True`` every call returns fresh arrays. With ``copy=False`` it returns read-only views of the
    batch's memory, made once: what a step returned stays as it is until the second next ``step`` or ``reset``
    overwrites it. The memory lives for as long as any view of it, also after ``close``. Terminal observations in
    ``infos["final_obs"]`` are always copies.

    A seeded run gives the same episodes wherever its lanes run. Lanes that were never seeded are seeded from the
    system's randomness by the first ``reset``; ``np_random_seed`` tells how.

    ``render_mode="rgb_array"`` is there for envs that draw themselves, as all built-in ones do
    (``env_spec(id)["renders"]``): ``render`` draws every lane as it is then, after the state that a step left, and costs
    steps nothing. ``render_size`` is the width and height of the images in pixels.

    Attributes of lanes (``get_attr``, ``set_attr``) are the env's options by name and ``state``, the exact state as a
    float64 array in an order that docs/envs.md gives or Gymnasium's own. An option that is set counts from the next
    step on; lanes that play go on in the state they are in. Recorded lanes keep their options and states while they play, so
    that their episodes can be recomputed. The numbers that the env's dynamics are compiled with can be read by the names that
    Gymnasium has for them (``gravity``; ``env_spec(id)["constants"]``), and not set.

    ``reset(options={...})`` gives options to the lanes that are reset: one value for all, or an array or list of N.
    Unlike in Gymnasium they stay until others are given, also where autoreset begins an episode. Recordings have them. A distribution
    (``{"uniform": [9, 10.5]}``) stays too, and each episode draws a value of its own, which ``get_attr`` shows.

    Attributes:
        copies: The argument ``copy``.
    """

    copies: bool

    # Set before `_adopt`.
    _env_spec: Mapping[str, Any]
    _max_episode_steps: int | None
    _render_size: tuple[int, int] | None

    def _adopt(self, native: _native.NativeLanes, *, seed: int | Sequence[int | None] | None, copy: bool) -> None:
        """Takes the lanes over, once everything else of the env is there."""
        self.copies = bool(copy)
        self._first_seeds = self._parse_seeds(seed)
        self._native = native
        self._attributes: frozenset[str] | None = None
        self._own_actions: np.ndarray | None = None
        self._native_step: Callable[[Any], Step] = native.step
        if self.info_layout == "0.29":
            self._native_step = self._old_step
        if type(self).step is NativeVectorEnv.step:
            # Saves a call of Python's per step: a twentieth of a small batch.
            self.step = self._native_step  # type: ignore[method-assign]

    def _watch_events(self, place: Any) -> None:
        """Has events reported from now on; ``place`` is the folder that is recorded into."""
        self._events = Events(self._native, place)
        # Not held by the native half, which the events hold.
        events = weakref.ref(self._events)

        def report() -> None:
            waiting = events()
            if waiting is not None:
                waiting.report()

        self._native.report_by(report)

    @property
    def transport(self) -> str:
        """The way in which this process and the lanes talk: ``"embedded"``, ``"shm"``, ``"quic"`` or ``"mixed"``."""
        raise NotImplementedError

    def step(self, actions: Any) -> Step:
        """Steps as ``VectorEnv.step`` does; fastest with a C-contiguous array of the action space's own dtype."""
        # All checks are made behind this call: the overhead of a small batch is counted in nanoseconds.
        return self._native_step(actions)

    @property
    def actions(self) -> np.ndarray:
        """An array of actions to fill in and hand to ``step``: the memory that the node reads, if lanes are stepped
        through one, so that nothing is copied; else an ordinary array. Writing to it during a step decides which
        action is taken. Of actions of several parts it has a row of numbers per lane, the elements of all parts in turn; of
        a Text and a Sequence these are the items and their number. Where a node carries actions in a wider dtype than the
        space's, so does the array.
        """
        self._check_usable()
        column = self._native.actions
        if column is None:
            if self._own_actions is None:
                space = self.single_action_space
                shape, dtype = space.shape or (), kept(space)
                if ActionParts.has(space):
                    parts = ActionParts(space)
                    shape, dtype = (parts.elements,), parts.dtype
                self._own_actions = np.zeros((self.num_envs, *shape), dtype)
            return self._own_actions
        return column

    def _old_step(self, actions: Any) -> Step:
        return self._in_029(self._native.step(actions))

    def _in_029(self, step: Step) -> Step:
        from rollhouse.info_layout import infos_of_029

        return (*step[:4], infos_of_029(step[4], len(step[1])))

    def _step(self, actions: Any) -> Step:
        return self._native_step(actions)

    def _reset(
        self, seeds: list[int | None], mask: np.ndarray | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any]]:
        given = {} if options is None else reset_options(self._env_spec, options, self.num_envs)
        if None in self._lane_seeds:
            # A lane that was never seeded is, so that its episodes can be made again.
            first = self._draw_seeds()
            for lane, known in enumerate(self._lane_seeds):
                if known is None and seeds[lane] is None and (mask is None or mask[lane]):
                    seeds[lane] = first[lane]
        return self._native.reset(seeds, [] if mask is None else mask.tolist(), given)

    def _draw_seeds(self) -> list[int]:
        """Returns the seeds for lanes if the first reset is given none; they are drawn once."""
        drawn = [int.from_bytes(os.urandom(6), "little") if seed is None else seed for seed in self._first_seeds]
        self._first_seeds = [*drawn]
        return drawn

    @property  # type: ignore[misc]
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seed that each lane was last given; before the first reset, the one that this will give it."""
        if None not in self._lane_seeds:
            return tuple(self._lane_seeds)
        first = zip(self._lane_seeds, self._draw_seeds(), strict=True)
        return tuple(drawn if known is None else known for known, drawn in first)

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy of every lane's generator, where it stands now: what is drawn from it changes no lane."""
        self._check_usable()
        if not self._reset_done:
            return tuple(np.random.Generator(np.random.PCG64(seed)) for seed in self.np_random_seed)
        return tuple(_generator_at(*(int(number) for number in at)) for at in self._native.get_attr("generator"))

    def _send(self, actions: Any, env_ids: Any) -> None:
        lanes = np.arange(self.num_envs) if env_ids is None else np.asarray(env_ids)
        if lanes.ndim != 1 or (lanes.size and lanes.dtype.kind not in "iu"):
            raise TypeError(f"env_ids={env_ids!r} must be a sequence of lane indices")
        if lanes.size and not 0 <= lanes.min() <= lanes.max() < self.num_envs:
            bad = next(int(lane) for lane in lanes if not 0 <= lane < self.num_envs)
            raise IndexError(f"env_ids: lane {bad} of a batch of {self.num_envs}")
        self._native.send(actions, lanes.tolist())

    def _recv(self, min_envs: int | None, timeout: float | None) -> Step:
        step = self._native.recv(min_envs, timeout)
        return self._in_029(step) if self.info_layout == "0.29" else step

    def statistics(self) -> dict[str, Any]:
        """Returns what the lanes have done and how the time of their batches was spent, by session.

        Returns:
            ``steps``, ``episodes`` (finished), and ``sessions``: per node (one for lanes of this process) a dict of
            ``steps``, ``outcomes``, ``results``, ``returns``, ``lengths``, ``restarts``, ``lost`` and ``timings``.
        """
        self._check_usable()
        return statistics_of(self._native.statistics())

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if name == "render":
            return (None,) * self.num_envs if self.render_mode is None else tuple(self._native.render(self._render_size))
        if args or kwargs or name.startswith("_"):
            raise AttributeError(f"lanes of {self._env_spec['id']} have no method {name!r}")
        shared = {
            "action_space": self.single_action_space,
            "max_episode_steps": self._max_episode_steps,
            "metadata": self.metadata,
            "observation_space": self.single_observation_space,
            "render_mode": self.render_mode,
            "spec": self.spec,
        }
        if name in shared:
            return (shared[name],) * self.num_envs
        if name == "np_random_seed":
            return self.np_random_seed
        if name == "np_random":
            return self.np_random
        if name not in self._writable():
            self._check_attribute(name, [*shared, "np_random", "np_random_seed"])
        return tuple(self._native.get_attr(name))

    @property
    def methods(self) -> Mapping[str, Mapping[str, Any]]:
        """The methods that ``call_method`` knows; see ``VectorEnv.methods``."""
        return self._env_spec["methods"]

    def _call_method(self, lane: int, method: str, payload: str) -> str:
        return self._native.call(lane, method, payload)

    def _set_policy_version(self, version: int) -> None:
        self._native.set_policy_version(version)

    def _note(self, lanes: list[int] | None, columns: list[tuple[int, np.ndarray]]) -> None:
        self._native.note(lanes, columns)

    def _set_attr(self, name: str, values: list[Any]) -> None:
        if name not in self._writable():
            self._call(name, (), {})
            id = self._env_spec["id"]
            why = ""
            if name in self._lane_attributes():
                why = (
                    f": the dynamics are compiled with it, and recordings recomputed; where it has to change, "
                    f"rollhouse.make_vec('gymnasium:{id}', ...) runs Gymnasium's env"
                )
            raise AttributeError(f"attribute {name!r} of lanes of {id} is read-only{why}")
        self._native.set_attr(name, [plain(value) for value in values])

    def _check_attribute(self, name: str, others: Iterable[str]) -> None:
        if name not in self._lane_attributes():
            known = ", ".join(sorted({*others, *self._writable(), *self._lane_attributes()}))
            raise AttributeError(f"lanes of {self._env_spec['id']} have no attribute {name!r}; they have {known}")

    def _lane_attributes(self) -> frozenset[str]:
        """Returns the names of the lanes' attributes. They are asked for once, on a cluster by a round trip."""
        if self._attributes is None:
            known = (name for name, _ in self._native.attributes())
            # The former is `np_random`, the latter is of the env.
            self._attributes = frozenset(known) - {"generator", "max_episode_steps"}
        return self._attributes

    def _writable(self) -> list[str]:
        return [*self._env_spec["options"], "state"]

    def _close(self, **kwargs: Any) -> None:
        if hasattr(self, "_native"):
            self._native.close()

    def __del__(self) -> None:
        # Gymnasium before 1.3 closes here. The native half gives everything back when nobody can use it any
        # more, which may be later: a bound `step` outlives the env it was taken from.
        pass

    def _check_usable(self) -> None:
        # Forks are noticed by the native half.
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} is closed")


def statistics_of(said: str) -> dict[str, Any]:
    """Returns the statistics that the native half tells, with their sums."""
    sessions = json.loads(said)
    finished = (session["outcomes"].get(word, 0) for session in sessions for word in ("terminated", "truncated"))
    return {
        "steps": sum(session["steps"] for session in sessions),
        "episodes": sum(finished),
        "sessions": sessions,
    }


def _generator_at(
    seed_low: int, seed_high: int, words_low: int, words_high: int, is_left: int, half: int
) -> np.random.Generator:
    """Returns NumPy's generator of that seed, so many 64-bit words further on, with half a word left over or none."""
    bits = np.random.PCG64(seed_high << 32 | seed_low)
    bits.advance(words_high << 32 | words_low)
    if is_left:
        state = bits.state
        state["has_uint32"], state["uinteger"] = 1, half
        bits.state = state
    return np.random.Generator(bits)


def make_space(space: Mapping[str, Any]) -> gymnasium.Space:
    """Makes the Gymnasium space that ``env_spec`` describes."""
    if "parts" in space:
        return make_space(space["parts"])
    if space["kind"] == "dict":
        return gymnasium.spaces.Dict([(name, make_space(part)) for name, part in space["spaces"]])
    if space["kind"] == "tuple":
        return gymnasium.spaces.Tuple([make_space(part) for part in space["spaces"]])
    if space["kind"] == "text":
        lengths = {"min_length": space["min_length"], "max_length": space["max_length"]}
        return gymnasium.spaces.Text(**lengths, charset=space["characters"])
    if space["kind"] == "sequence":
        return BoundedSequence(make_space(space["item"]), space["maximum"], space["stack"])
    if space["kind"] == "discrete":
        return gymnasium.spaces.Discrete(space["n"], start=space["start"], dtype=np.dtype(space.get("own", np.int64)).type)
    if space["kind"] == "multi_binary":
        shape = space["shape"]
        return gymnasium.spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    dtype = np.dtype(space.get("own", space["dtype"]))
    low, high = (
        np.array(space[bound], dtype=np.float64).astype(dtype).reshape(space["shape"]) for bound in ("low", "high")
    )
    if space["kind"] == "multi_discrete":
        return gymnasium.spaces.MultiDiscrete(high - low + 1, dtype=dtype.type, start=low)
    return gymnasium.spaces.Box(low, high, dtype=dtype.type)


def action_converter(space: gymnasium.Space) -> Callable[[Any, int], np.ndarray]:
    """Returns a function of (actions, rows) that gives them as a C-contiguous array of the engine's type.

    It raises ``InvalidActionError`` for a wrong number of them and ``ActionTypeError`` for a wrong type. Which
    values the space contains the engine checks, but for parts of an action, which are checked here.
    """
    if ActionParts.has(space):
        parts = ActionParts(space)
        return lambda actions, rows: parts.rows(actions, rows, action_converter)
    row_shape = space.shape or ()
    dtype = np.dtype(np.uint8) if isinstance(space, gymnasium.spaces.MultiBinary) else kept(space)
    # Of what the engine does not check, the env's own dtype has to have it.
    checked = isinstance(space, (gymnasium.spaces.Discrete, gymnasium.spaces.MultiBinary))
    own = dtype if checked else np.dtype(space.dtype)
    kinds, what = {"f": ("fiu", "numbers"), "b": ("b", "flags")}.get(dtype.kind, ("iu", "integers"))

    def convert(actions: Any, rows: int) -> np.ndarray:
        try:
            array = np.asarray(actions)
        except (ValueError, TypeError, RuntimeError) as error:
            raise ActionTypeError(f"actions={actions!r} cannot be made an array: {error}") from error
        if array.ndim == 0:
            raise ActionTypeError(f"actions={actions!r} must be one row per lane ({rows}), not a single value")
        if array.shape != (rows, *row_shape):
            raise InvalidActionError(f"actions have shape {array.shape}, must have {(rows, *row_shape)}")
        if array.dtype.kind not in kinds:
            raise ActionTypeError(f"actions have dtype {array.dtype}, must be {what} that fit {own}")
        if dtype.kind in "iu" and array.size and not np.can_cast(array.dtype, own):
            fits: Any = np.iinfo(own)  # type: ignore[type-var]
            bad = [end for end in (array.min(), array.max()) if not fits.min <= end <= fits.max]
            if bad:
                raise InvalidActionError(f"action {bad[0]} is not in {space}")
        with np.errstate(over="ignore"):
            # What a double has beyond a single becomes infinite, which the engine refuses.
            array = array if own == dtype else array.astype(own)
            return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])

    return convert


def lane_options_of(
    spec: Mapping[str, Any],
    shared: Mapping[str, Any],
    lane_options: Sequence[Mapping[str, Any]] | None,
    num_envs: int,
    arguments: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """Returns one dict of options for all lanes, or one per lane. ``arguments`` are those of ``check_option``."""
    if lane_options is not None and len(lane_options) != num_envs:
        raise ValueError(f"lane_options has {len(lane_options)} dicts, must have one per lane ({num_envs})")
    lanes = [dict(shared)] if lane_options is None else [{**shared, **one} for one in lane_options]
    for name in (name for lane in lanes for name in lane):
        check_option(spec, name, arguments)
    # NumPy's scalars are not Python's.
    return [{name: option_of(value) for name, value in lane.items()} for lane in lanes]


def reset_options(spec: Mapping[str, Any], options: Mapping[str, Any], num_envs: int) -> dict[str, list[Any]]:
    """Returns for each option of a reset a list of one value for all lanes, or of one per lane."""
    given = {}
    for name, value in options.items():
        check_option(spec, name)
        if _is_per_lane(spec["options"][name][0], value):
            if len(value) != num_envs:
                raise OptionsError(f"option {name!r} has {len(value)} values, must have 1 or {num_envs}")
            given[name] = [option_of(one) for one in value]
        else:
            given[name] = [option_of(value)]
    return given


def _is_per_lane(default: Any, value: Any) -> bool:
    """Returns whether a reset's option has a value for each lane. Where the option is a list, those are lists."""
    is_list = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return is_list and (not isinstance(default, list) or any(np.ndim(one) or isinstance(one, dict) for one in value))


def merged_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that were given by name, and those of a dict that was given as ``options``."""
    given = dict(options)
    more = given.pop("options", None)
    if more is None:
        return given
    if not isinstance(more, Mapping):
        raise OptionsError(f"options={more!r} must be a dict of options")
    for name in more:
        if name in given:
            raise OptionsError(f"option {name!r} is given by name and in options")
    return {**more, **given}


def check_option(spec: Mapping[str, Any], name: str, arguments: Iterable[str] = ()) -> None:
    """Raises ``UnknownOptionError`` with the nearest name if the env has no such option.

    Args:
        spec: The result of ``env_spec``.
        name: The name of the option.
        arguments: Names that the caller takes for itself, which may have been meant.
    """
    known = list(spec["options"])
    if name not in known:
        nearest = difflib.get_close_matches(name, [*known, *arguments], n=1, cutoff=0.4)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        takes = ", ".join(known) if known else "no options"
        raise UnknownOptionError(f"unknown option {name!r}; {hint}{spec['id']} takes {takes}", name)


def check_render_mode(id: str, render_mode: str | None, renders: bool) -> None:
    """Raises unless the env can be rendered in that mode."""
    if render_mode is None:
        return
    if not renders:
        message = f"render_mode={render_mode!r}: {id} has no renderer, so it must be None"
        raise UnknownOptionError(message, "render_mode")
    if render_mode != "rgb_array":
        raise OptionsError(
            f"render_mode={render_mode!r} is neither None nor 'rgb_array'; "
            "gymnasium.wrappers.vector.HumanRendering shows the images of 'rgb_array' in a window"
        )


def render_size_of(render_mode: str | None, size: Sequence[int] | None) -> tuple[int, int] | None:
    """Checks the size of images that was asked for, and returns it."""
    if size is None:
        return None
    if render_mode is None:
        raise OptionsError(f"render_size={size!r} is used only with render_mode='rgb_array'")
    if not isinstance(size, Sequence) or len(size) != 2:
        raise OptionsError(f"render_size={size!r} must be a width and a height in pixels")
    width, height = (positive("render_size", side) for side in size)
    _native.check_render_size(width, height)
    return width, height


def render_metadata(id: str, renders: bool) -> dict[str, Any]:
    """Returns the part of an env's ``metadata`` about rendering it."""
    if not renders:
        return {"render_modes": []}
    known = _native.env_spec(id) if id in _native.env_ids() else {}
    return {"render_modes": ["rgb_array"], "render_fps": known.get("render_fps") or RENDER_FPS}


def option_of(value: Any) -> Any:
    """Returns an option's value without NumPy's types."""
    return value.tolist() if isinstance(value, np.ndarray) else plain(value)


def plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={value!r} must be an integer")
    if value < 1:
        raise ValueError(f"{name}={value} must be at least 1")
    return int(value)
