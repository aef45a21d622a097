"""Writes docs/reference.md: every public name of the package with its signature and its docstring.

    python crates/python/reference.py            writes the page
    python crates/python/reference.py --check    fails if the page is another

It reads the sources and imports none of them, so that nothing has to be installed.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "crates" / "python" / "python"
PAGE = ROOT / "docs" / "reference.md"

MODULES = [
    "rollhouse",
    "rollhouse.replays",
    "rollhouse.launch",
    "rollhouse.sb3",
    "rollhouse.pettingzoo",
    "rollhouse.tianshou",
    "rollhouse.errors",
]

ERRORS = "rollhouse.errors"
"""The module of errors, which are a list."""

HEAD = """# Python reference

Made from the docstrings by `python crates/python/reference.py`; a test holds it to them. [python.md](python.md) is the guide,
[trainers.md](trainers.md) has the lines for each trainer and [recipes.md](recipes.md) whole set-ups.

"""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def source(module: str) -> Path | None:
    """Returns the file of a module of the package; None of any other."""
    base = PACKAGE.joinpath(*module.split("."))
    places = [base / "__init__.py", base.with_suffix(".py"), base.with_suffix(".pyi")]
    return next((place for place in places if place.is_file()), None)


def parsed(module: str) -> ast.Module:
    file = source(module)
    assert file is not None, f"there is no module {module}"
    return ast.parse(file.read_text())


def public(tree: ast.Module) -> list[str]:
    """Returns the names in `__all__`, else all that are defined there and have no underscore."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("__")]
    return [node.name for node in tree.body if isinstance(node, Definition) and not node.name.startswith("_")]


def find(module: str, name: str) -> Definition | None:
    """Returns the definition of a name, wherever the module has it from; None of what is no function and no class."""
    tree = parsed(module)
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return node
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and source(node.module):
            for alias in node.names:
                if (alias.asname or alias.name) == name and source(f"{node.module}.{name}") is None:
                    return find(node.module, alias.name)
    return None


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    """Returns a function as it is called."""
    arguments = model(node).args
    for first in (*arguments.posonlyargs[:1], *arguments.args[:1]):
        if first.arg in ("self", "cls"):
            (arguments.posonlyargs or arguments.args).remove(first)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    line = f"{prefix}{name}({ast.unparse(arguments)}){returns}"
    return "\n".join(textwrap.wrap(line, 110, subsequent_indent="    ", break_long_words=False))


def model(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """Returns the method whose arguments a method has: that of its `@arguments_of(Class.method)`, else its own."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "arguments_of":
            of, _, name = ast.unparse(decorator.args[0]).partition(".")
            parts = getattr(find("rollhouse", of), "body", [])
            return next(part for part in parts if getattr(part, "name", "") == name)
    return node


def markdown(text: str | None) -> str:
    """Returns a docstring as Markdown: sections as bold words, their entries as lists."""
    lines, entry = [], False
    for line in inspect.cleandoc(text or "").replace("``", "`").splitlines():
        if re.fullmatch(r"(Args|Attributes|Raises|Returns|Yields|Keywords|Methods):", line):
            lines += ["", f"**{line[:-1]}**", ""]
            entry = True
        elif entry and re.match(r"    [\w*`., ]+: ", line):
            name, said = line.strip().split(": ", 1)
            lines.append(f"- `{name.strip('`')}`: {said}")
        elif entry and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            entry = entry and not line
            lines.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def properties(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Returns a class's public methods and properties."""
    functions = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [part for part in functions if not part.name.startswith("_") and not is_setter(part)]


def is_setter(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).endswith(".setter") for decorator in node.decorator_list)


def is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) in ("property", "cached_property") for decorator in node.decorator_list)


def brief(node: Definition) -> str:
    """Returns the first paragraph of a docstring, as one line."""
    return " ".join(markdown(ast.get_docstring(node)).split("\n\n")[0].split())


def entry(module: str, name: str) -> str:
    node = find(module, name)
    if node is None:
        return ""
    if module == ERRORS and isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"- `{name}({bases})`: {brief(node)}\n"
    title = f"### {module}.{name}\n\n"
    if not isinstance(node, ast.ClassDef):
        return f"{title}```text\n{signature(node, name)}\n```\n\n{markdown(ast.get_docstring(node))}\n\n"
    text = f"{title}{markdown(ast.get_docstring(node))}\n\n"
    members = [part for part in properties(node) if ast.get_docstring(part)]
    for part in members:
        shown = part.name if is_property(part) else signature(part, part.name)
        text += f"- `{' '.join(shown.split())}`: {brief(part)}\n"
    return text + ("\n" if members else "")


def page() -> str:
    text = HEAD
    for module in MODULES:
        text += f"- [{module}](#{module.replace('.', '')})\n"
    for module in MODULES:
        tree = parsed(module)
        text += f"\n## {module}\n\n{markdown(ast.get_docstring(tree))}\n\n"
        text += "".join(entry(module, name) for name in sorted(public(tree), key=str.lower))
    return text.rstrip() + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE} is not what the docstrings say: run {__file__}")
    PAGE.write_text(page())
