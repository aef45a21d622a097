"""Pages for operators name commands, options and files that are there."""

from __future__ import annotations

import functools
import re

import pytest
from conftest import ROOT, program, run

PAGES = ["runbooks.md", "operations.md", "dashboards.md"]


@functools.cache
def helped(words: tuple[str, ...]) -> str:
    return run(program(), *words, "--help")


def commands(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return [code for code in re.findall(r"`([^`\n]+)`", text) + text.split("\n") if code.startswith("rollhouse ")]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one_of_the_program(page: str) -> None:
    for command in commands(page):
        words: tuple[str, ...] = ()
        for word in command.split()[1:]:
            subcommands = re.findall(r"^  ([a-z-]+) ", helped(words).partition("Commands:")[2], re.MULTILINE)
            if word not in subcommands:
                # An argument, or a slip: what has subcommands is nothing without one.
                assert not subcommands or word == "..." or word.startswith("-"), command
                break
            words += (word,)
        for option in re.findall(r"--[a-z-]+", command):
            assert option in helped(words), command


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_ours_is_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for path in re.findall(r"\bdeploy/[\w./-]*\w", text):
        # Secrets are made by whoever prepares a cluster.
        assert (ROOT / path).exists() or path.startswith("deploy/docker/secrets"), path
    for link in re.findall(r"\]\(([\w-]+\.md)", text):
        assert (ROOT / "docs" / link).is_file(), link
