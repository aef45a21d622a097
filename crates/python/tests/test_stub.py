"""``_native.pyi`` has what the native module has: each name, and of what is called each argument."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import rollhouse
from rollhouse import _native

Definition = ast.FunctionDef | ast.ClassDef
STUB = ast.parse((Path(rollhouse.__file__).parent / "_native.pyi").read_text())


def defined(body: list[ast.stmt]) -> dict[str, Definition]:
    return {node.name: node for node in body if isinstance(node, Definition)}


def arguments(node: ast.FunctionDef) -> list[str]:
    """The arguments of a function of the stub; one that can be left out ends with ``=``."""
    of = node.args
    plain = [argument.arg for argument in of.args if argument.arg not in ("self", "cls")]
    return [*plain[: len(plain) - len(of.defaults)], *(f"{name}=" for name in plain[len(plain) - len(of.defaults) :])]


def taken(function: Any) -> list[str]:
    """The arguments of a native function, but for ``**keywords``."""
    parameters = inspect.signature(function).parameters.values()
    known = [one for one in parameters if one.name != "self" and one.kind is not inspect.Parameter.VAR_KEYWORD]
    return [one.name + ("=" if one.default is not one.empty else "") for one in known]


def public(module: Any) -> set[str]:
    return {name for name in vars(module) if not name.startswith("_")}


def test_the_stub_has_every_name_of_the_module() -> None:
    values = {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    assert defined(STUB.body).keys() | values == public(_native)


@pytest.mark.parametrize("name", defined(STUB.body))
def test_the_stub_has_what_it_takes(name: str) -> None:
    node, native = defined(STUB.body)[name], getattr(_native, name)
    if isinstance(node, ast.FunctionDef):
        assert arguments(node) == taken(native)
        return
    members = defined(node.body)
    assert members.keys() - {"__new__"} == public(native)
    made = members.pop("__new__", None)
    assert (made is None) == (native.__text_signature__ is None)
    if isinstance(made, ast.FunctionDef):
        assert arguments(made) == taken(native)
    for member, method in members.items():
        assert isinstance(method, ast.FunctionDef)
        is_property = any(ast.unparse(decorator) == "property" for decorator in method.decorator_list)
        assert is_property == inspect.isgetsetdescriptor(vars(native)[member]), member
        assert is_property or arguments(method) == taken(vars(native)[member]), member


LANES = {"program": ["none"], "hellos": [b""], "ranges": [(0, 1)], "launches": (1, 1), "timeouts": (None, None), "together": False}


@pytest.mark.parametrize("name", ["NativeLanes.__new__", "NativeCluster.__new__", "NativeWorkers.lay_out"])
def test_the_stub_has_the_keywords_of_what_has_many(name: str) -> None:
    of, _, member = name.partition(".")
    node = defined(defined(STUB.body)[of].body)[member]
    assert isinstance(node, ast.FunctionDef)
    keywords = {argument.arg: object() for argument in node.args.kwonlyargs}
    native = getattr(_native, of)
    call = (lambda **given: native("CartPole-v1", **given)) if member == "__new__" else native(**LANES).lay_out
    assert inspect.Parameter.VAR_KEYWORD in {one.kind for one in inspect.signature(native if member == "__new__" else call).parameters.values()}
    # Names are looked at first: it takes all of these and wants no other, where a value is what is refused.
    with pytest.raises(TypeError, match="^argument '"):
        call(**keywords)
    with pytest.raises(TypeError, match="unexpected keyword argument 'another'"):
        call(**keywords, another=1)
