"""Pages for operators name commands, options and files that are there."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import DEPLOY, ROOT, program, run

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
            listed = helped(words).partition("Usage:")[2].partition("\nOptions:")[0]
            subcommands = re.findall(r"^  ([a-z-]+) ", listed, re.MULTILINE)
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


class Bare:
    """A machine that has a shell, its usual programs, and of others what is said."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        for name in ["sh", "cat", "chmod", "cp", "dirname", "head", "base64", "id", "ls", "mkdir", "realpath"]:
            (self.bin / name).symlink_to(shutil.which(name))

    def has(self, name: str, script: str = "exit 0") -> None:
        program = self.bin / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def run(self, *line: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(word) for word in line], env={"PATH": str(self.bin)}, capture_output=True, text=True)


def test_what_a_bare_debian_lacks_to_build_images_is_named_with_its_package_before_anything_is_done(tmp_path: Path) -> None:
    """Symptom: on a bare Debian the build of images ended in its middle, with what a shell says of a program that is not there.
    Cause: the page named neither packages nor what stands in for a compiler. Fix: both do, and the script looks first."""
    machine, build, binary = Bare(tmp_path), DEPLOY / "docker" / "build.sh", tmp_path / "rollhouse"
    binary.touch()
    wheels = tmp_path / "wheels"
    wheels.mkdir()

    def lacks(*line: str | Path) -> str:
        done = machine.run(build, *line)
        assert done.returncode == 1 and done.stdout == "", done
        return done.stderr

    assert "docker.io" in lacks("--binary", binary, "rollhouse")
    # No base is there yet.
    machine.has("docker", '[ "$1" != image ]')
    assert "binutils" in lacks("--binary", binary, "rollhouse")
    machine.has("strip")
    assert "--binary FILE" in lacks("rollhouse")
    assert "Debian's package debootstrap" in lacks("--binary", binary, "--wheels", wheels, "rollhouse-python")
    machine.has("debootstrap")
    assert "no wheel rollhouse-*.whl" in lacks("--binary", binary, "--wheels", wheels, "rollhouse-python")
    machine.has("python3", "exit 1")
    assert "python3-pip" in lacks("--binary", binary, "rollhouse-python")
    machine.has("python3")
    assert "--wheels DIR" in lacks("--binary", binary, "rollhouse-python")
    named = (ROOT / "docs" / "operations.md").read_text().split("\n## Install with Compose\n", 1)[1].split("\n## ")[0]
    for package in ["docker.io", "docker-compose", "binutils", "python3", "debootstrap", "python3-pip"]:
        assert re.search(rf"apt-get install .*\b{re.escape(package)}\b", named), package


@pytest.mark.parametrize("has_plugin", [True, False])
def test_secrets_are_prepared_with_whichever_compose_there_is(has_plugin: bool, tmp_path: Path) -> None:
    """Symptom: the secrets were not made on Debian 12. Cause: it has no `docker compose`, but docker-compose. Fix: whichever is
    there is taken."""
    machine, said = Bare(tmp_path), tmp_path / "said"
    plugin = '[ "$1" = compose ] && exit 1' if not has_plugin else ""
    machine.has("docker", f'{plugin}\necho docker "$1" >>{said}')
    machine.has("docker-compose", f'echo docker-compose "$1" >>{said}; echo token')
    script = tmp_path / "prepare.sh"
    script.write_text((DEPLOY / "docker" / "prepare.sh").read_text())
    # Certificates are made by the container that is none here.
    for name in ["coordinator", "node-1", "node-2"]:
        tls = tmp_path / "secrets" / "tls" / name
        tls.mkdir(parents=True)
        (tls / "cert.pem").touch()
    done = machine.run("sh", script)
    assert done.returncode == 0, done
    lines = said.read_text().splitlines()
    assert ("docker-compose run" in lines) is not has_plugin and ("docker compose" in lines) is has_plugin, lines
