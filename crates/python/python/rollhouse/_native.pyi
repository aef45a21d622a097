"""The native half of the package. Its interface is that of the modules beside it, which use it."""

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, final

import gymnasium
import numpy as np

_Step = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
_GivenPolicy = tuple[str, int, int, tuple[bool, float, float] | None, bytes]
"""Name, version, seed, how it draws (deterministic, temperature, epsilon), and the file."""

VERSION: str

def run_command(line: Sequence[str], python: str | None = None) -> int:
    """Runs the ``rollhouse`` command of that line, whose first word is the program's name, and gives its exit code.

    The process belongs to it from then on: it takes over signals and stdout.
    """

def env_ids() -> list[str]:
    """The ids of all built-in envs and of those of loaded plug-ins, sorted."""

def load_plugin(path: str | os.PathLike[str], trusted: bool, command: list[str] | None) -> list[str]:
    """Loads a plug-in and gives the ids of its envs."""

def check_render_size(width: int, height: int) -> None:
    """Raises ``OptionsError`` unless an image can have that size."""

def difference(better: list[float], than: list[float]) -> tuple[float, float, float, int] | None:
    """What the first returns have beyond the second, NaN standing for a lost episode: mean, low and high ends, pairs."""

def policy_in_dialect(file: bytes, dialect: str, env: str) -> bytes:
    """The file of a net in a dialect of ONNX, for an env of this process."""

def env_spec(id: str) -> dict[str, Any]:
    """What an env of this process says of itself.

    ``id``, ``summary``, ``observation_space``, ``action_space``, ``observation_names``, ``action_names``,
    ``max_episode_steps`` (None for no limit), ``deterministic``, ``options`` (default and summary by name),
    ``constants`` (numbers that its dynamics are compiled with, by the names Gymnasium has for them),
    ``info_channels`` (name, dtype and shape of each), ``dynamics_hash``, ``renders``, and of an env that draws itself
    ``render_size`` (width and height of an image in pixels, unless another is asked for) and ``render_fps``.

    Raises:
        UnknownEnvError: There is none; the message names the nearest.
    """

@final
class NativeLanes:
    """Lanes and the arrays over their memory. One thread at a time."""

    def __new__(
        cls,
        id: str,
        *,
        lanes: int,
        threads: int | None,
        autoreset: str,
        max_episode_steps: int | None,
        options: Sequence[dict[str, Any]],
        copy: bool,
        show_valid: str,
        raise_on_loss: bool,
        statistics: bool,
        convert: Callable[[Any, int], np.ndarray],
        data: str | os.PathLike[str] | None,
        record: str,
        step_columns: Sequence[tuple[str, str, tuple[int, ...]]],
    ) -> NativeLanes: ...
    @property
    def threads(self) -> int: ...
    @property
    def recording(self) -> tuple[Path, str, RecordingWatch] | None: ...
    @property
    def has_news(self) -> bool: ...
    def take_news(self) -> list[dict[str, Any]]: ...
    def report_by(self, report: Callable[[], None]) -> None: ...
    @property
    def addresses(self) -> tuple[int, int]: ...
    @property
    def placements(self) -> list[tuple[str, int, int, str]]: ...
    @property
    def outstanding(self) -> int: ...
    @property
    def actions(self) -> np.ndarray | None: ...
    def reset(
        self, seeds: Sequence[int | None], mask: Sequence[bool], options: dict[str, list[Any]]
    ) -> tuple[Any, dict[str, Any]]: ...
    def step(self, actions: Any) -> _Step: ...
    def step_views(self, actions: Any) -> _Step: ...
    def latest(self) -> _Step: ...
    def act(self, actions: Any, lanes: Sequence[int]) -> _Step: ...
    def pace(self, lanes: Sequence[int], control: str, number: int, text: str) -> list[str]: ...
    def send(self, actions: Any, lanes: Sequence[int]) -> None: ...
    def recv(self, least: int | None, timeout: float | None) -> _Step: ...
    def begin_step(self) -> None: ...
    def begin_reset(
        self, seeds: Sequence[int | None], mask: Sequence[bool], given: bytes, options: Mapping[str, Sequence[Any]]
    ) -> None: ...
    def finish(self, timeout: float | None = None) -> bool: ...
    def frame(self) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray, np.ndarray]: ...
    def recv_columns(self, least: int, timeout: float | None = None) -> tuple[Any, ...] | None: ...
    @property
    def lost_count(self) -> int: ...
    def lost(self) -> list[int]: ...
    def failed(self) -> list[int]: ...
    def restart_lost(self) -> None: ...
    def set_deadline(self, deadline: float | None) -> None: ...
    def get_attr(self, name: str) -> list[Any]: ...
    def set_attr(self, name: str, values: Sequence[Any]) -> None: ...
    def call(self, lane: int, method: str, payload: str) -> str: ...
    def set_policy_version(self, version: int) -> None: ...
    def note(self, lanes: Sequence[int] | None, columns: Sequence[tuple[int, np.ndarray]]) -> None: ...
    def render(self, size: tuple[int, int] | None = None) -> list[np.ndarray]: ...
    def statistics(self) -> str: ...
    def renders(self) -> bool: ...
    def attributes(self) -> list[tuple[str, bool]]: ...
    def close(self, patience: float | None = None) -> None: ...

@final
class RecordingWatch:
    """What a recording has come to."""

    def figures(self) -> dict[str, Any]: ...

@final
class NativeCluster:
    """A connection to a cluster's coordinator."""

    def __new__(
        cls,
        url: str,
        *,
        token: str | None,
        ca: str | None,
        certificate: tuple[str, str] | None,
        transport: str | None,
        attach: str | None,
        timeout: float,
    ) -> NativeCluster: ...
    def status(self) -> str: ...
    def nodes(self) -> str: ...
    def envs(self) -> str: ...
    def sessions(self) -> str: ...
    def put_policy(self, name: str, version: int | None, file: bytes) -> int: ...
    def policies(self) -> str: ...
    def fetch_policy(self, name: str, version: int | None) -> tuple[int, bytes]: ...
    def remove_policy(self, name: str, version: int | None) -> int: ...
    def pin(self, name: str, pinned: bool) -> None: ...
    def recordings(self) -> Recordings: ...
    def close_pool(self, run: str, timeout: float) -> str: ...
    def open_replay(self, name: str) -> tuple[NativeReplay, str, dict[str, Any]]: ...
    def make(
        self,
        id: str,
        asked: str,
        options: Mapping[str, Any],
        convert: Callable[[dict[str, Any]], Callable[[Any, int], np.ndarray]],
    ) -> tuple[str, dict[str, Any], NativeLanes]: ...
    def close(self) -> None: ...

@final
class NativeReplay:
    """A recorded episode that a node shows."""

    def seek(self, step: int) -> dict[str, Any]: ...
    def step(self, by: int) -> dict[str, Any]: ...
    def play(self, speed: float) -> dict[str, Any]: ...
    def pause(self) -> dict[str, Any]: ...
    def look(self, after: int, wait: float) -> dict[str, Any] | None: ...
    def render(self, size: tuple[int, int] | None) -> np.ndarray: ...
    def close(self) -> None: ...

@final
class NativeRollouts:
    """Fragments that a policy plays in lanes, which are the rollouts' from then on."""

    def __new__(
        cls,
        lanes: NativeLanes,
        *,
        steps: int,
        staleness: int,
        seed: int,
        group: int,
        whole: bool,
        policy: _GivenPolicy,
    ) -> NativeRollouts: ...
    def next(self, timeout: float) -> dict[str, Any]: ...
    def update(self, policy: _GivenPolicy) -> NativeUpdate: ...
    @property
    def version(self) -> int: ...
    def close(self) -> None: ...

@final
class NativeUpdate:
    """An update that is on its way to the nodes."""

    def wait(self, timeout: float) -> bool: ...

@final
class EpisodeStatistics:
    """What the open episodes of lanes have come to."""

    def __new__(cls, lanes: int) -> EpisodeStatistics: ...
    def begin(self, lanes: Sequence[int]) -> None: ...
    def step(
        self,
        infos: dict[str, Any],
        lanes: Sequence[int],
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        reset: np.ndarray,
    ) -> None: ...

@final
class NativeWorkers:
    """Worker processes of this one's own, and the lanes that they step."""

    def __new__(
        cls,
        program: Sequence[str | os.PathLike[str]] | str,
        hellos: Sequence[bytes],
        ranges: Sequence[tuple[int, int]],
        launches: tuple[int, int],
        timeouts: tuple[float | None, float | None],
        together: bool,
    ) -> NativeWorkers: ...
    def launch_all(self) -> None: ...
    def made(self) -> tuple[int, str, str] | None: ...
    def answer(self, worker: int) -> bytes: ...
    def lay_out(
        self,
        *,
        id: str,
        observation: tuple[Any, ...],
        action: tuple[Any, ...],
        infos: Sequence[tuple[str, str, Sequence[int]]],
        autoreset: str,
        max_episode_steps: int | None,
        deadline: float | None,
        data: str | os.PathLike[str] | None,
        record: str,
        frames_every: int,
        step_columns: Sequence[tuple[str, str, tuple[int, ...]]],
        methods: str,
        declared: str,
        options: Sequence[Mapping[str, Any]],
    ) -> tuple[NativeLanes, list[dict[str, Any]]]: ...
    def greet(self, setups: Sequence[tuple[int, bytes]]) -> tuple[int, str, str] | None: ...
    def said(self, lanes: Sequence[int] | None = None) -> list[tuple[int, bytes | None, bytes | None]]: ...
    def set_item(self, lane: int, item: bytes) -> None: ...
    def why(self, lane: int) -> tuple[bool, str, bytes]: ...
    def look_after(self) -> None: ...
    def quiet(self, timeout: float | None = None) -> bool: ...
    def call(self, payloads: Sequence[bytes], timeout: float | None) -> None: ...
    def answers(self, timeout: float | None = None) -> list[bytes | tuple[int, str, str]] | None: ...
    def process_ids(self) -> list[int]: ...
    def close(self, patience: float | None) -> None: ...

@final
class WorkerLink:
    """The end of the connection that a worker process holds."""

    def __new__(cls, host: int) -> WorkerLink: ...
    @staticmethod
    def connect(folder: str | os.PathLike[str], place: int | None = None) -> WorkerLink: ...
    def hello(self) -> bytes: ...
    def ready(self, answer: bytes) -> tuple[int, int, int]: ...
    def receive(self) -> tuple[int, bytes]: ...
    def publish(self, offset: int, number: int) -> None: ...
    def publish_all(self, numbers: Sequence[tuple[int, int]]) -> None: ...
    def connecting(self, retries: int) -> None: ...
    def reply(self, code: int, payload: bytes) -> None: ...

@final
class EpisodeInfo:
    """What a listing says of an episode; the fields of ``rollhouse replay ls --json`` and ``replay show --json``."""

    @property
    def id(self) -> str:
        """Its name: run, lane and number, like ``k3f9q2tz-17-203``."""
    @property
    def env(self) -> str:
        """The env's id."""
    @property
    def seed(self) -> int | None:
        """The number with which ``reset(seed)`` alone gives the first state, or None if there is none."""
    @property
    def length(self) -> int:
        """Steps."""
    @property
    def return_(self) -> float | None:
        """Sum of rewards; None if its end was never recorded."""
    @property
    def outcome(self) -> str:
        """``terminated``, ``truncated``, or how it was interrupted."""
    @property
    def result(self) -> str | None:
        """``win``, ``lose`` or ``draw``; None if its env gave it no result."""
    @property
    def score(self) -> float | None:
        """The score that its env gave it; None if it gave none."""
    @property
    def agent_returns(self) -> dict[str, float]:
        """Sum of each agent's rewards, by name, of an episode of several; empty of an env of one, and where it was not recorded."""
    @property
    def terminated(self) -> bool:
        """Whether the env itself reached its end."""
    @property
    def truncated(self) -> bool:
        """Whether a limit cut it; may hold together with ``terminated``."""
    @property
    def finished(self) -> bool:
        """Whether it was terminated or truncated, and not interrupted."""
    @property
    def started(self) -> datetime.datetime:
        """When it began, to 100 ms, in UTC."""
    @property
    def policy(self) -> str:
        """Name of what chose its actions."""
    @property
    def policy_version(self) -> int:
        """Version of that policy when the run began; ``policy_versions`` has those of the steps."""
    def calls(self) -> list[tuple[int, str, str]]:
        """Reads the calls that changed its lane: (steps before it, method, payload as JSON)."""
    def policy_versions(self) -> np.ndarray:
        """Reads which version of the policy chose each action: uint64 ``[T]``, 0 where nobody had said it."""
    def step_columns(self) -> dict[str, np.ndarray]:
        """Reads what was noted of each step by those who chose the actions: ``[T, ...]`` by name."""
    @property
    def dynamics(self) -> str:
        """Hash of the env's dynamics when it was recorded, 16 hexadecimal digits."""
    @property
    def bytes(self) -> int:
        """Its share of the bytes on disk, estimated."""
    @property
    def run(self) -> str:
        """The full id of its run."""
    @property
    def lane(self) -> int:
        """Its row in the run's batch."""
    @property
    def number(self) -> int:
        """Counts its lane's episodes from 0."""
    @property
    def options(self) -> dict[str, bool | int | float | str | list[float]]:
        """Options its lane was made with."""
    @property
    def max_episode_steps(self) -> int | None:
        """The time limit that applied, in steps."""
    @property
    def recorded(self) -> str:
        """How much of it is kept: ``action_log`` (recomputed when read), ``trace`` or ``full``."""
    @property
    def program(self) -> str:
        """Name and version of the program that recorded it."""
    @property
    def record_frames(self) -> int | None:
        """Of every how many-th step a picture was recorded; None if of none."""
    @property
    def parent(self) -> tuple[str, int] | None:
        """Name of the episode that it was forked from, and the step up to which both are the same."""
    @property
    def folder(self) -> Path:
        """The folder it is in."""
    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of one observation."""
    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of one action."""

@final
class Recordings:
    """The recordings of a folder and of the folders in it, or of a cluster's store, as they were when opened."""

    def __new__(cls, path: str | os.PathLike[str]) -> Recordings: ...
    @property
    def is_writing(self) -> bool: ...
    @property
    def folders(self) -> list[Path]: ...
    def count(self) -> int: ...
    def list(
        self,
        filter: tuple[str | None, str | None, str | None, float | None, dict[str, Any] | None, Mapping[str, float] | None],
        all_outcomes: bool,
        sort: str,
        limit: int | None,
    ) -> list[EpisodeInfo]: ...
    def find(self, name: str) -> EpisodeInfo: ...
    def pin(self, name: str, pinned: bool) -> None: ...
    def verify(
        self, infos: Sequence[EpisodeInfo] | None, hosting: tuple[str, Sequence[str], int | None, int | None] | None
    ) -> tuple[int, int, Sequence[Any], Sequence[str]]: ...

def episode_name(run: str, lane: int, number: int) -> str: ...
def pack_frame(image: np.ndarray) -> bytes: ...
def unpack_frame(packed: bytes) -> np.ndarray: ...
def read_frames(info: EpisodeInfo) -> list[tuple[int, bytes]]: ...
def in_reading_order(infos: Sequence[EpisodeInfo]) -> list[EpisodeInfo]: ...
def read_episodes(
    infos: Sequence[EpisodeInfo],
) -> tuple[
    np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]
]: ...
