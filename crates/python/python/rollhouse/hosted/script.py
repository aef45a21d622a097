"""What workers are sent of the program that makes a vector env: the envs that it registered, and its own definitions.

A program's definitions are the classes and functions of the module that was started (``__main__``), which a new process cannot
import. Those that functions of lanes reach are sent once for each worker, and put there under the names that they have here.
Other classes travel as bytes, which are looked at when they are missed. What cannot be sent is named then.
"""

from __future__ import annotations

import copy
import functools
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec, registry

from rollhouse import registration
from rollhouse.errors import NotSentError

STARTED = ("__main__", "__mp_main__")
"""Names of the module that was started; the second one is its name in processes of multiprocessing."""

MAX_UNREACHED_BYTES = 1 << 20
"""Most bytes of a definition that no function of a lane reaches."""

Sent = tuple[bytes, str]
"""A pickled value, or none and why it cannot be sent."""


def pack(env_fns: Sequence[Callable[[], Any]]) -> tuple[list[bytes], bytes]:
    """Returns the functions of lanes, pickled each, and what ``unpack`` puts into a worker before they are unpickled.

    Raises:
        TypeError: A function cannot be pickled; the message names its index.
    """
    started = sys.modules.get("__mp_main__")
    if started is not None:
        cloudpickle.register_pickle_by_value(started)
    reached: dict[str, Any] = {}
    functions: dict[int, bytes] = {}
    for index, fn in enumerate(env_fns):
        if id(fn) not in functions:
            functions[id(fn)] = _pickle_fn(index, fn, reached)
    definitions = _definitions(reached, env_fns)
    plain, others = [], {}
    for id_, spec in registry.items():
        if all(_is_data(value) for value in vars(spec).values()):
            plain.append(spec)
        else:
            others[id_] = _sent(spec, reached, None)
    named = set(_named_by(registry.values()))
    later = {
        name: _sent(value, reached, MAX_UNREACHED_BYTES)
        for name, value in list(vars(sys.modules["__main__"]).items())
        if name not in reached and (name in named or (isinstance(value, type) and _name_of(value) == name))
    }
    told = (definitions, later, pickle.dumps(plain), others, registration.loaded_plugins())
    return [functions[id(fn)] for fn in env_fns], pickle.dumps(told)


def unpack(packed: bytes) -> None:
    """Puts what ``pack`` made into this process."""
    definitions, later, plain, others, plugins = pickle.loads(packed)
    started = sys.modules["__main__"]
    # What started this process has names of its own there.
    for name in [name for name in vars(started) if not name.startswith("__")]:
        delattr(started, name)
    sys.modules["__mp_main__"] = started
    vars(started)["__getattr__"] = functools.partial(_missed, later)
    vars(started).update(pickle.loads(definitions))
    by_env = {id_: path for path, _, ids in plugins for id_ in ids}
    trusted = {path: whether for path, whether, _ in plugins}
    for spec in pickle.loads(plain):
        path = by_env.get(spec.kwargs.get("env_id"))
        if path is not None:
            spec = copy.copy(spec)
            spec.entry_point = functools.partial(_of_plugin, path, trusted[path])
        if registry.get(spec.id) != spec:
            registry[spec.id] = spec
    for id_, sent in others.items():
        try:
            registry[id_] = _received(sent, f"the env {id_!r}, which is registered in the process that makes the lanes,")
        except NotSentError as error:
            registry[id_] = EnvSpec(id_, entry_point=functools.partial(_refuse, str(error)))


class _Pickler(cloudpickle.Pickler):
    """Pickles by value, but by name the program's definitions of which ``by_name`` says so."""

    def __init__(self, file: io.BytesIO, by_name: Callable[[str], bool]):
        super().__init__(file)
        self._by_name = by_name

    def reducer_override(self, obj: Any) -> Any:
        name = _name_of(obj) if isinstance(obj, (type, FunctionType)) else None
        if name is not None and self._by_name(name.partition(".")[0]):
            return _definition, (name,)
        return super().reducer_override(obj)


class _Bounded(io.BytesIO):
    """Takes so many bytes and no more."""

    def __init__(self, most: int | None):
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        if self._most is not None and self.tell() + len(data) > self._most:
            raise ValueError(f"it takes more than {self._most} bytes")
        return super().write(data)


def _pickle_fn(index: int, fn: Callable[[], Any], reached: dict[str, Any]) -> bytes:
    def by_name(name: str) -> bool:
        reached[name] = _definition(name)
        return True

    file = io.BytesIO()
    try:
        _Pickler(file, by_name).dump(fn)
    except Exception as error:
        raise _unsendable(index, fn, error) from error
    return file.getvalue()


def _definitions(reached: dict[str, Any], env_fns: Sequence[Callable[[], Any]]) -> bytes:
    """Returns all definitions that are reached, in one, for they may reach each other; others are added to ``reached``."""

    def by_value(name: str) -> bool:
        reached[name] = _definition(name)
        return False

    while True:
        before, file = dict(reached), io.BytesIO()
        try:
            _Pickler(file, by_value).dump(before)
        except Exception as error:
            index, cause = _at_fault(env_fns, error)
            raise _unsendable(index, env_fns[index], cause) from cause
        if reached.keys() == before.keys():
            return file.getvalue()


def _at_fault(env_fns: Sequence[Callable[[], Any]], error: Exception) -> tuple[int, Exception]:
    """Returns the function that reaches what cannot be pickled, and why that cannot."""
    for index, fn in enumerate(env_fns):
        try:
            cloudpickle.dumps(fn)
        except Exception as own:
            return index, own
    return 0, error


def _unsendable(index: int, fn: Callable[[], Any], error: Exception) -> TypeError:
    return TypeError(f"env_fns[{index}]={fn!r} cannot be pickled, so it cannot be sent to a worker process: {error}")


def _name_of(obj: Any) -> str | None:
    """Returns the name by which the program's module has a class or function; None if it has not."""
    name = getattr(obj, "__qualname__", None)
    if getattr(obj, "__module__", None) not in STARTED or not isinstance(name, str):
        return None
    found: Any = sys.modules["__main__"]
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is obj else None


def _named_by(specs: Iterable[EnvSpec]) -> Iterator[str]:
    """Iterates over the program's names that registered envs name in texts."""
    for spec in specs:
        for entry in (spec.entry_point, *(wrapper.entry_point for wrapper in spec.additional_wrappers)):
            module, _, name = entry.partition(":") if isinstance(entry, str) else ("", "", "")
            if module in STARTED:
                yield name.partition(".")[0]


def _is_data(value: Any) -> bool:
    """Returns whether a value is made of numbers and texts, which any process can read."""
    if isinstance(value, dict):
        return type(value) is dict and all(_is_data(part) for pair in value.items() for part in pair)
    if type(value) in (list, tuple):
        return all(map(_is_data, value))
    return value is None or type(value) in (str, int, float, bool)


def _sent(value: Any, known: dict[str, Any], most: int | None) -> Sent:
    file = _Bounded(most)
    try:
        _Pickler(file, known.__contains__).dump(value)
    except Exception as error:
        return b"", f"{type(error).__name__}: {error}"
    return file.getvalue(), ""


def _received(sent: Sent, what: str) -> Any:
    """Unpickles what was sent.

    Raises:
        NotSentError: There is nothing of it here.
    """
    packed, why = sent
    if not packed:
        raise NotSentError(f"{what} could not be sent to this worker: {why}")
    try:
        return pickle.loads(packed)
    except Exception as error:
        raise NotSentError(f"{what} cannot be made anew in this worker: {type(error).__name__}: {error}") from error


def _definition(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), sys.modules["__main__"])


def _missed(later: dict[str, Sent], name: str) -> Any:
    """Returns a definition of the program that is asked for; the attribute lookup of its module in a worker."""
    if name not in later:
        raise AttributeError(f"module '__main__' has no attribute {name!r}")
    value = _received(later[name], f"{name} of the program's module __main__")
    setattr(sys.modules["__main__"], name, value)
    return value


def _refuse(message: str, **_: Any) -> Any:
    raise NotSentError(message)


def _of_plugin(path: str, trusted: bool, **arguments: Any) -> gymnasium.Env:
    """Makes an env of a plug-in that the program has loaded."""
    from rollhouse.single import SingleEnv

    registration.load_plugin(path, trusted=trusted)
    return SingleEnv(**arguments)
