"""Vector envs whose lanes run in this process, on the engine's threads."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium
from gymnasium.vector import AutoresetMode

from rollhouse import _native
from rollhouse.errors import UnknownEnvError
from rollhouse.lookup import is_learned
from rollhouse.native_env import (
    NAMESPACE,
    NativeVectorEnv,
    action_converter,
    check_render_mode,
    lane_options_of,
    make_space,
    merged_options,
    positive,
    render_metadata,
    render_size_of,
)
from rollhouse.record_rule import record_rule
from rollhouse.recording import Recording
from rollhouse.step_columns import StepColumns, StepColumnSpecs
from rollhouse.vector import InfoLayout, Mode, ShowValid, VectorEnv, show_valid

DEFAULT_DATA = "./rollhouse-data"
"""The data folder of recordings, as the command line has it; ROLLHOUSE_DATA overrides it."""


class EmbeddedVectorEnv(NativeVectorEnv, gymnasium.vector.VectorEnv):
    """N lanes of a built-in env, stepped by the engine in this process.

    With ``copy=False`` no step allocates an array (in NEXT_STEP and DISABLED mode); views are of the engine's own
    memory. The interpreter lock is released while a batch is stepped, unless the batch takes less than a
    microsecond. A seeded run gives the same episodes on every machine and with any number of ``threads``.
    """

    def __init__(
        self,
        id: str,
        num_envs: int,
        *,
        seed: int | Sequence[int] | None = None,
        autoreset_mode: Mode = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        record: bool | str = False,
        data: str | os.PathLike[str] | None = None,
        copy: bool = True,
        max_episode_steps: int | None = None,
        info_layout: InfoLayout = "default",
        valid: ShowValid = "needed",
        on_loss: Literal["raise", "report"] | None = None,
        lane_options: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        render_size: Sequence[int] | None = None,
        statistics: bool = False,
        step_columns: StepColumnSpecs | None = None,
    ):
        id = id.removeprefix(NAMESPACE)
        spec = _spec_of(id)
        check_render_mode(id, render_mode, spec["renders"])
        self._render_size = render_size_of(render_mode, render_size)
        num_envs = positive("num_envs", num_envs)
        if threads is not None:
            threads = positive("threads", threads)
        if max_episode_steps is not None and not 0 <= max_episode_steps < 2**32:
            raise ValueError(f"max_episode_steps={max_episode_steps!r} must be 0 (no limit) to {2**32 - 1}")
        rule = record_rule(record)
        if data is not None and not record:
            raise ValueError(f"data={os.fspath(data)!r} is used only with record=True")
        if on_loss is None:
            on_loss = "report" if spec["deterministic"] else "raise"
        self._step_columns = StepColumns(step_columns)
        self._env_spec = spec
        self._max_episode_steps = spec["max_episode_steps"] if max_episode_steps is None else max_episode_steps or None
        checked = lane_options_of(spec, options or {}, lane_options, num_envs, _ARGUMENTS)
        super().__init__(
            num_envs=num_envs,
            single_observation_space=make_space(spec["observation_space"]),
            single_action_space=make_space(spec["action_space"]),
            autoreset_mode=autoreset_mode,
            metadata=render_metadata(id, spec["renders"]),
            info_layout=info_layout,
            valid=valid,
            on_loss=on_loss,
            render_mode=render_mode,
            statistics=statistics,
        )
        native = _native.NativeLanes(
            id,
            lanes=num_envs,
            threads=threads,
            autoreset=self.autoreset_mode.value,
            max_episode_steps=max_episode_steps,
            options=checked,
            copy=bool(copy),
            show_valid=show_valid(info_layout, valid),
            raise_on_loss=on_loss == "raise",
            statistics=self.episode_statistics,
            convert=action_converter(self.single_action_space),
            data=_data_folder(data) if record else None,
            record=rule,
            step_columns=self._step_columns.declared,
        )
        self._adopt(native, seed=seed, copy=copy)
        where = self._native.recording
        if where is not None:
            folder, run, watch = where
            self.recording = Recording(Path(folder), run, watch.figures)
        self._watch_events(None if where is None else where[0])
        if record:
            _RECORDING.add(self)

    @property
    def transport(self) -> str:
        """``"embedded"``: lanes are stepped in this process."""
        return "embedded"

    @property
    def threads(self) -> int:
        """Number of threads that step, the caller's included; small batches use fewer than they may."""
        return self._native.threads

    def _close(self, **kwargs: Any) -> None:
        _RECORDING.discard(self)
        if not hasattr(self, "_native"):
            return
        try:
            self._native.close()
        finally:
            if self.recording is not None:
                self.recording._close()


def make_vec(
    id: str,
    num_envs: int = 1,
    *,
    seed: int | Sequence[int] | None = None,
    autoreset_mode: Mode = AutoresetMode.NEXT_STEP,
    threads: int | None = None,
    record: bool | str = False,
    data: str | os.PathLike[str] | None = None,
    copy: bool = True,
    max_episode_steps: int | None = None,
    **options: Any,
) -> VectorEnv:
    """Makes a vector env.

    Args:
        id: A built-in env (``rollhouse.env_ids()``), with or without ``rollhouse/`` before it, or
            ``gymnasium:ID`` for N of Gymnasium's env ``ID`` in worker processes, ``package.module:Class`` for N of those, or
            ``vector:package:ID`` for a vector env of a package, whose N lanes step together (``vector:envpool:Pong-v5``).
        num_envs: N, the number of lanes, 1 to 65,536.
        seed: The seed of the first ``reset`` if that is given none: an int s (lane i gets
            s + i) or one per lane. None draws seeds.
        autoreset_mode: ``gymnasium.vector.AutoresetMode`` or its value.
        threads: The most threads that step, the caller's included; None for one per core. Results do not
            depend on it.
        record: True to record every episode, as the command line does; ``"sample:0.01"`` to record each with that
            probability, ``"trace"`` for every step's observations too. See ``EmbeddedVectorEnv.recording``.
        data: The data folder; None for ``ROLLHOUSE_DATA`` or ``./rollhouse-data``.
        copy: False for views of the engine's memory, valid until the second next step.
        max_episode_steps: The time limit; None for the env's own, 0 for none.
        **options: ``env_kwargs`` (arguments of a Python env; by name as well), ``options`` (a dict of what the env itself takes, ``rollhouse.env_spec(id)["options"]``; it may stand here
            by name as well), ``info_layout``, ``valid``, ``on_loss``, ``render_mode``, ``render_size`` (width and height of images in
            pixels), ``statistics``, ``lane_options`` (one dict of options per lane) and ``step_columns`` (what ``note``
            notes of each step, for recordings: ``{"log_prob": "float32", "logits": ("float32", (4,))}``, at most 16 columns
            and 65,536 bytes a lane). An option is a value, or a
            distribution of which each episode draws a value of its own when it begins: ``{"uniform": [low, high]}``,
            ``{"integers": [low, high]}`` (both included) or ``{"choice": [value, ...]}``.

    Raises:
        UnknownEnvError, OptionsError, ValueError: The message names the argument, its value and what was wanted.
        RecordingError: The data folder cannot be written.
    """
    if options.get("pace") is not None:
        raise ValueError(
            "pace: lanes of this process wait for whoever steps them; live lanes are a cluster's: `rollhouse up` starts one, "
            "and so does rollhouse.launch.local() from here; its make_vec(..., pace=...) has them"
        )
    if is_learned(id):
        from rollhouse import hosted

        shared = {
            "seed": seed,
            "autoreset_mode": autoreset_mode,
            "threads": threads,
            "record": record,
            "data": data,
            "copy": copy,
            "max_episode_steps": max_episode_steps,
        }
        return hosted.make_vec(id, num_envs, **shared, **options)  # type: ignore[arg-type]
    ours = {name: options.pop(name) for name in OURS if name in options}
    env_kwargs = options.pop("env_kwargs", None) or {}
    twice = sorted(options.keys() & env_kwargs.keys())
    if twice:
        raise TypeError(f"env_kwargs: {', '.join(twice)} stands there and by name")
    options = merged_options({**options, **env_kwargs})
    return EmbeddedVectorEnv(
        id,
        num_envs,
        seed=seed,
        autoreset_mode=autoreset_mode,
        threads=threads,
        record=record,
        data=data,
        copy=copy,
        max_episode_steps=max_episode_steps,
        options=options,
        **ours,
    )


_ARGUMENTS = tuple(EmbeddedVectorEnv.__init__.__kwdefaults__ or ())
"""Keywords of every env, one of which may be meant by what is no option."""

OURS = ("info_layout", "valid", "on_loss", "lane_options", "render_mode", "render_size", "statistics", "step_columns")
"""Keywords that are no options of envs."""


def _spec_of(id: str) -> dict[str, Any]:
    try:
        return _native.env_spec(id)
    except UnknownEnvError as error:
        if id not in gymnasium.registry:
            raise
        raise UnknownEnvError(
            f"{id} is Gymnasium's and not built in: 'gymnasium:{id}' runs it in worker processes"
        ) from error


def _data_folder(data: str | os.PathLike[str] | None) -> str:
    return os.fspath(data) if data is not None else os.environ.get("ROLLHOUSE_DATA") or DEFAULT_DATA


_RECORDING: weakref.WeakSet[VectorEnv] = weakref.WeakSet()


@atexit.register
def _close_recording() -> None:
    """Ends the open episodes of envs that were not closed, so that their replays are complete."""
    for env in list(_RECORDING):
        env.close()
