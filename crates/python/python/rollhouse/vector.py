"""The one vector environment type: everything that does not depend on where its lanes live."""

from __future__ import annotations

import copy as _copy
import json
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rollhouse.errors import ClosedError, ForkedError, ResetNeededError, SeedError
from rollhouse.events import Event, Events
from rollhouse.step_columns import StepColumns

if TYPE_CHECKING:
    from typing_extensions import Self

    from rollhouse.recording import Recording
    from rollhouse.tensors import TensorView

InfoLayout = Literal["default", "gymnasium", "0.29"]
Mode = AutoresetMode | Literal["NextStep", "SameStep", "Disabled"]
"""When the next episode of a lane begins: Gymnasium's enum, or its value."""
ShowValid = Literal["needed", "always"]
Step = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]

DEFAULT_TIMEOUT = 60.0
"""Seconds that a blocking call waits when it is not told otherwise."""

MAX_SEED = 2**64 - 1
"""The largest seed of a lane, but for one of a Python env here that is not recorded."""


def rows_at(observations: Any, index: Any, space: gymnasium.Space | None = None) -> Any:
    """Returns the rows of a batch's observations at an index: one lane's observation, or those of several lanes.

    Args:
        observations: The batch.
        index: A lane, or an array of lanes.
        space: The space of one lane's observation. Without it there is no Text and no Sequence, of which a batch is a tuple.
    """
    if isinstance(space, (gymnasium.spaces.Text, gymnasium.spaces.Sequence)):
        return observations[index] if np.ndim(index) == 0 else tuple(observations[lane] for lane in index)
    if isinstance(observations, dict):
        parts = space.spaces if isinstance(space, gymnasium.spaces.Dict) else {}
        return {key: rows_at(part, index, parts.get(key)) for key, part in observations.items()}
    if isinstance(observations, tuple):
        each = space.spaces if isinstance(space, gymnasium.spaces.Tuple) else [None] * len(observations)
        return tuple(rows_at(part, index, of) for part, of in zip(observations, each, strict=True))
    return observations[index]


class VectorEnv(gymnasium.vector.VectorEnv):
    """A batch of ``num_envs`` lanes, each one environment, stepped together.

    It is a ``gymnasium.vector.VectorEnv`` whose lanes run in this process (``EmbeddedVectorEnv``), on the nodes of
    a cluster (``ClusterVectorEnv``) or in worker processes (``HostedVectorEnv``); ``rollhouse.make_vec``,
    ``rollhouse.connect`` and ``rollhouse.vectorize`` choose. Not thread-safe: one thread at a time.

    Row i of everything belongs to lane i:

    * observations: as ``observation_space``, N rows;
    * rewards: float64 [N]; terminations and truncations: bool [N];
    * infos: a fresh dict per call, in Gymnasium's layout: for each key an array [N] (or a nested dict, or an
      object array), and a bool mask [N] under ``"_" + key``.

    ``infos["valid"]`` (bool [N]), with its mask, is in the infos of each step with a row that is no transition, and
    False there: where NEXT_STEP reset the lane instead of stepping it, and where the lane is lost. Learners drop those
    rows. ``valid="always"`` puts it in the infos of all steps. ``info_layout="gymnasium"`` gives exactly the keys that
    Gymnasium's own classes give, without ``valid`` unless a lane is lost or it is asked for; ``"0.29"`` is that with the
    names of Gymnasium 0.29 (``final_observation``, and ``final_info`` as an object array of dicts).

    With ``statistics=True`` the infos of a step in which episodes ended have ``episode``, a dict of arrays [N]: ``r`` (float64,
    the sum of rewards), ``l`` (int64, steps), ``t`` (float64, seconds), and its mask, as Gymnasium's
    ``RecordEpisodeStatistics`` gives them, which is not needed then and costs tens of times more. Episodes of lanes that are
    lost have none.

    A lane that was lost in a step (its env crashed, hung, or its process died) has terminated False, truncated
    True, reward 0 and the last delivered observation; ``infos["lost"][i]`` names the outcome. While it is being
    restarted its rows stay not valid and its flags False; then it begins an episode as autoreset would.
    ``on_loss="raise"`` raises ``LaneLostError`` instead.

    Attributes:
        num_envs: N, the number of lanes.
        autoreset_mode: The rule by which the next episode begins; also in ``metadata["autoreset_mode"]``.
        observation_space, action_space: The spaces of the whole batch.
        single_observation_space, single_action_space: The spaces of one lane.
        metadata: A dict of this instance's own.
        spec: Gymnasium's ``EnvSpec`` when it was made through Gymnasium, else None or what it was set to.
        render_mode: None unless the lanes render.
        info_layout: The argument of that name.
        valid: The argument of that name.
        on_loss: The argument of that name.
        episode_statistics: The argument ``statistics``.
        recording: The recording of what the lanes play, if there is one.
    """

    metadata: dict[str, Any]
    # Until it is made there is nothing to close: older Gymnasiums close what was made halfway.
    closed: bool = True
    recording: Recording | None = None
    _max_seed: int | None = MAX_SEED
    _step_columns: StepColumns = StepColumns(None)
    info_layouts: ClassVar[tuple[str, ...]] = ("default", "gymnasium", "0.29")
    valids: ClassVar[tuple[str, ...]] = ("needed", "always")
    on_losses: ClassVar[tuple[str, ...]] = ("raise", "report")

    def __init__(
        self,
        *,
        num_envs: int,
        single_observation_space: gymnasium.Space,
        single_action_space: gymnasium.Space,
        observation_space: gymnasium.Space | None = None,
        action_space: gymnasium.Space | None = None,
        autoreset_mode: Mode = AutoresetMode.NEXT_STEP,
        metadata: dict[str, Any] | None = None,
        info_layout: InfoLayout = "default",
        valid: ShowValid = "needed",
        on_loss: Literal["resume", "raise", "report"] = "raise",
        render_mode: str | None = None,
        statistics: bool = False,
    ):
        super().__init__()
        self.num_envs = num_envs
        self.single_observation_space = single_observation_space
        self.single_action_space = single_action_space
        batch_space = gymnasium.vector.utils.batch_space
        self.observation_space = (
            batch_space(single_observation_space, num_envs) if observation_space is None else observation_space
        )
        self.action_space = batch_space(single_action_space, num_envs) if action_space is None else action_space
        self.autoreset_mode = parse_autoreset_mode(autoreset_mode)
        self.metadata = _copy.copy(metadata) if metadata else {}
        self.metadata["autoreset_mode"] = self.autoreset_mode
        self.check_layout(info_layout, valid)
        self.info_layout = info_layout
        self.valid = valid
        if on_loss not in self.on_losses:
            raise ValueError(f"on_loss={on_loss!r} is not one of {', '.join(self.on_losses)}")
        self.on_loss = on_loss
        self.episode_statistics = bool(statistics)
        self.render_mode = render_mode
        self.spec = None
        self._pid = os.getpid()
        self.closed = False
        self._lane_seeds: list[int | None] = [None] * num_envs
        self._reset_done = False
        self._events = Events()

    @classmethod
    def check_layout(cls, info_layout: str, valid: str) -> None:
        """Raises ``ValueError`` unless infos can have that layout."""
        if info_layout not in cls.info_layouts:
            raise ValueError(f"info_layout={info_layout!r} is not one of {', '.join(cls.info_layouts)}")
        if valid not in cls.valids:
            raise ValueError(f"valid={valid!r} is not one of {', '.join(cls.valids)}")

    # What Gymnasium asks for.

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every lane, or in those of ``options["reset_mask"]``.

        Args:
            seed: None (lanes draw on), an int s (lane i gets s + i), or one int or None per lane.
            options: For every lane's own reset; never changed. ``reset_mask``, a bool array [N] with at least
                one True, says which lanes to reset; the others keep state and observation. The first reset leaves
                none out.

        Returns:
            Observations of all lanes (of those left alone, the last ones) and the infos of those reset.

        Raises:
            ValueError, TypeError: For a wrong ``seed`` or ``reset_mask``; nothing has changed then.
            ResetNeededError: The mask leaves lanes out that no reset has begun yet.
        """
        self._check_usable()
        self._report_events()
        seeds = self._parse_seeds(seed)
        mask, options = self._split_options(options)
        result = self._reset(seeds, mask, options)
        self._reset_done = True
        for lane, value in enumerate(seeds):
            if value is not None and (mask is None or mask[lane]):
                self._lane_seeds[lane] = value
        return result

    def step(self, actions: Any) -> Step:
        """Steps every lane once; blocks for as long as the lanes take.

        Args:
            actions: A batch of ``action_space``: N rows.

        Returns:
            Observations, rewards, terminations, truncations and infos, as the class says.

        Raises:
            InvalidActionError, ActionTypeError: Nothing has moved then.
            ResetNeededError: Before the first reset, and in DISABLED mode over a lane whose episode is over.
            OutstandingError: While lanes that were sent have not been received.
        """
        self._check_usable()
        self._report_events()
        return self._step(actions)

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Sends actions for some lanes and returns without waiting for them.

        Args:
            actions: One row per lane of ``env_ids``.
            env_ids: Lane indices, int [k], none twice; None for all lanes in order.

        Raises:
            OutstandingError: A lane was sent already and has not been received. Nothing is sent then.
            BusyError: Too much is under way: receive first.
        """
        self._check_usable()
        self._report_events()
        self._send(actions, env_ids)

    def recv(self, min_envs: int | None = None, timeout: float | None = DEFAULT_TIMEOUT) -> Step:
        """Waits until at least ``min_envs`` lanes that were sent are done, and returns all that are done.

        Args:
            min_envs: 1 to the number of outstanding lanes; None for all of them.
            timeout: Seconds to wait at most; None to wait without end.

        Returns:
            What ``step`` returns, with k rows of fresh memory; ``infos["env_id"]`` (int64 [k]) names their lanes.

        Raises:
            NothingOutstandingError: Fewer lanes than ``min_envs`` (or none) are outstanding.
            TimeoutError: The lanes stay outstanding.
        """
        self._check_usable()
        if min_envs is not None and (isinstance(min_envs, bool) or int(min_envs) != min_envs or min_envs < 1):
            raise ValueError(f"min_envs={min_envs!r} must be an integer of at least 1")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout={timeout!r} must be a number of seconds of at least 0")
        self._report_events()
        return self._recv(None if min_envs is None else int(min_envs), timeout)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls the method ``name`` of every lane's env, or reads its attribute ``name``. Returns N results.

        Raises:
            AttributeError: The envs have nothing of that name.
        """
        self._check_usable()
        return self._call(name, args, kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Returns the attribute ``name`` of every lane's env: N values."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets the attribute ``name`` of every lane's env.

        Args:
            name: The attribute.
            values: A list or tuple of N values, or one value for all lanes.

        Raises:
            ValueError: A list or tuple of another length.
        """
        self._check_usable()
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {self.num_envs} environments."
            )
        self._set_attr(name, list(values))

    @property
    def methods(self) -> Mapping[str, Mapping[str, Any]]:
        """What ``call_method`` knows: by name ``summary``, ``params`` (a JSON schema or None), ``changes`` (whether a call may
        change its lane) and ``max_per_second`` (calls a second on one lane, or None).
        """
        return {}

    def call_method(self, lane: int, method: str, payload: Any = None) -> Any:
        """Calls a method that the env lists (``methods``) on one lane, between two steps, and returns its answer.

        A method that changes its lane needs an open episode. Its call is recorded with the step that follows it and is part
        of the episode: whoever replays, verifies, forks or resumes it calls again. Observations show what it did after that
        step. ``call`` is Gymnasium's and something else: it calls what Python envs have, on all lanes, and nothing repeats it.

        Args:
            lane: The lane.
            method: The name of the method.
            payload: What the method is given: anything that JSON can say, in at most 65,536 bytes.

        Raises:
            AttributeError: The env has no such method; the message names those that it has.
            ResetNeededError: The method changes its lane, which has no open episode.
            BusyError: It was called too often; the message says when it may be called again.
            CallError: The env refused, or the lane is lost.
            OutstandingError: While lanes that were sent have not been received.
            RefusedError: A node refused, for any of these reasons.
        """
        self._check_usable()
        if isinstance(lane, bool) or not 0 <= operator.index(lane) < self.num_envs:
            raise IndexError(f"lane {lane!r} of a batch of {self.num_envs}")
        text = json.dumps(payload, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        answer = self._call_method(operator.index(lane), method, text)
        return json.loads(answer) if answer else None

    def _call_method(self, lane: int, method: str, payload: str) -> str:
        raise AttributeError(f"the env has no method {method!r}; it has none")

    def set_policy_version(self, version: int) -> None:
        """Says which version of the policy chooses the actions from now on, for recordings: each step has the version
        that acted (``EpisodeInfo.policy_versions``), and the viewer marks where it changes. On a cluster no lane may be
        outstanding.

        Args:
            version: 0 to 2**64 - 1; 0 stands for one that nobody has said.
        """
        self._check_usable()
        if isinstance(version, bool) or not 0 <= operator.index(version) < 2**64:
            raise ValueError(f"version={version!r} must be an integer from 0 to 2**64 - 1")
        self._set_policy_version(operator.index(version))

    def _set_policy_version(self, version: int) -> None:
        raise NotImplementedError

    def note(self, lanes: Any = None, /, **columns: Any) -> None:
        """Notes something of the steps that lanes take from now on, for recordings: values of columns that were declared
        as ``step_columns`` when the env was made. A value stays until another one is noted; before the first one it is
        NaN in columns of floats and else 0. Without ``record`` nothing is kept.

        Args:
            lanes: The k lanes that are meant, a sequence of indices; None for all N. None of them may be outstanding.
            **columns: For each name an array of k rows in that column's shape, or of one value for all.

        Raises:
            ValueError: A column was not declared, or an array has another shape.
            TypeError: An array has another dtype, and values could not be kept as they are.
            OutstandingError: A lane was sent and not received.
        """
        self._check_usable()
        lanes, rows = self._step_columns.lanes(lanes, self.num_envs)
        noted = self._step_columns.arrays(columns, rows)
        if self._is_recording():
            self._note(lanes, noted)

    def _is_recording(self) -> bool:
        return self.recording is not None

    def _note(self, lanes: list[int] | None, columns: list[tuple[int, np.ndarray]]) -> None:
        raise NotImplementedError

    @property
    def transport(self) -> str:
        """The way in which this process and the lanes talk: ``"embedded"``, ``"workers"``, ``"shm"``, ``"quic"`` or ``"mixed"``."""
        raise NotImplementedError

    @property
    def actions(self) -> Any:
        """Actions to fill in and hand to ``step``: an array of a row per lane."""
        raise NotImplementedError

    def statistics(self) -> dict[str, Any]:
        """Returns what the lanes have done and how the time of their batches was spent: ``steps``, ``episodes`` (finished), and
        ``sessions``, a list of one dict for each node, or of one for lanes of this machine.
        """
        raise NotImplementedError

    def render(self) -> tuple[Any, ...] | None:
        """Returns the rendered frames of all lanes, or None when ``render_mode`` is None."""
        self._check_usable()
        return None if self.render_mode is None else self._call("render", (), {})

    def close(self, **kwargs: Any) -> None:
        """Ends the lanes and gives everything back. Doing it again does nothing.

        In a forked child it does nothing either: the lanes are the parent's.
        """
        if self.closed:
            return
        self.closed = True
        if self._pid == os.getpid():
            try:
                self.close_extras(**kwargs)
            finally:
                self._events.close()

    def on_event(self, callback: Callable[[Event], object]) -> None:
        """Has ``callback`` called with each ``Event``: lanes or episodes that are lost, sessions of a cluster that move, disks of
        recordings that fail.

        It is called on the thread that steps, at the beginning of the next ``step``, ``reset``, ``send`` or ``recv``, and at the end of
        ``close``. What it raises is raised by that call, before any lane has moved: the call can be made again. Several callbacks are
        called in the order in which they were given. At most 256 events wait; of more the oldest go.

        Of the disks of a cluster's nodes there are no events: ``recording.failure`` asks for them.
        """
        self._check_usable()
        self._events.add(callback)

    def _report_events(self) -> None:
        if self._events.waits:
            self._events.report()

    def torch(self, device: Any = None) -> TensorView:
        """Returns the same env with ``reset``, ``step``, ``send`` and ``recv`` in tensors; needs PyTorch.

        Args:
            device: The device for results; None or ``"cpu"`` for tensors over the engine's own memory.
        """
        self._check_usable()
        from rollhouse.tensors import TensorView

        return TensorView(self, device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the lanes; ``close`` calls it once, as in Gymnasium."""
        self._close(**kwargs)

    @property  # type: ignore[misc]
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seed that each lane was last given."""
        return tuple(self._lane_seeds)

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy of every lane's generator, where it stands now: what is drawn from it changes no lane."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied: it owns threads, memory or processes; "
            "pass what it is made from instead"
        )

    # What a subclass gives. Arguments have been checked as far as they can be here.

    def _reset(
        self, seeds: list[int | None], mask: np.ndarray | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any]]:
        raise NotImplementedError

    def _step(self, actions: Any) -> Step:
        raise NotImplementedError

    def _send(self, actions: Any, env_ids: Any) -> None:
        raise NotImplementedError

    def _recv(self, min_envs: int | None, timeout: float | None) -> Step:
        raise NotImplementedError

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        raise NotImplementedError

    def _set_attr(self, name: str, values: list[Any]) -> None:
        raise NotImplementedError

    def _close(self, **kwargs: Any) -> None:
        raise NotImplementedError

    # Shared checks.

    def _check_usable(self) -> None:
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} is closed")
        if self._pid != os.getpid():
            raise ForkedError(
                f"this {type(self).__name__} was made in process {self._pid} and cannot be used in its forked "
                f"child {os.getpid()}; make another one here"
            )

    def _parse_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
            first = _parse_seed(seed, self._max_seed)
            _parse_seed(first + self.num_envs - 1, self._max_seed)
            return list(range(first, first + self.num_envs))
        if isinstance(seed, (str, bytes)) or not isinstance(seed, (Sequence, np.ndarray)):
            raise TypeError(f"seed={seed!r} must be None, an integer, or one integer or None per lane")
        if len(seed) != self.num_envs:
            raise ValueError(
                f"If seeds are passed as a list the length must match num_envs={self.num_envs} "
                f"but got length={len(seed)}."
            )
        return [None if one is None else _parse_seed(one, self._max_seed) for one in seed]

    def _split_options(
        self, options: dict[str, Any] | None
    ) -> tuple[np.ndarray | None, dict[str, Any] | None]:
        """Returns the reset mask and the rest. The caller's dict stays as it is, so that wrappers find the mask in it.
        """
        if options is None:
            return None, None
        if not isinstance(options, dict):
            raise TypeError(f"options={options!r} must be a dict or None")
        if "reset_mask" not in options:
            return None, options
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
        if mask.shape != (self.num_envs,):
            raise ValueError(
                f"`options['reset_mask']` must have shape `({self.num_envs},)`, got {mask.shape}"
            )
        if mask.dtype != np.bool_:
            raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
        if not mask.any():
            raise ValueError(
                "`options['reset_mask']` must contain a boolean array with at least one True value, "
                f"got reset_mask={mask}"
            )
        if mask.all():
            mask = None
        elif not self._reset_done:
            raise ResetNeededError(
                f"`options['reset_mask']` leaves out lane {int(mask.argmin())}, which has not been reset; "
                "the first reset is one of all lanes"
            )
        rest = {key: value for key, value in options.items() if key != "reset_mask"}
        return None if mask is None else mask.copy(), rest


def show_valid(info_layout: str, valid: str) -> Literal["always", "needed", "lost"]:
    """Returns in which infos ``valid`` is: in all, in those of steps with a row that is not a transition, or with a
    lost lane.
    """
    if valid == "always":
        return "always"
    return "needed" if info_layout == "default" else "lost"


def parse_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Returns the mode of that name or value.

    Raises:
        ValueError: There is none.
    """
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(repr(known.value) for known in AutoresetMode)
        raise ValueError(f"autoreset_mode={mode!r} is not one of {known}") from None


def _parse_seed(seed: Any, most: int | None) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed {seed!r} must be an integer")
    if seed < 0 or (most is not None and seed > most):
        raise SeedError(f"seed {seed} must be from 0 to {MAX_SEED if most is None else most}")
    return int(seed)
