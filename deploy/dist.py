"""Puts together what a release consists of, and tries each part where nothing else is installed.

    dist.py --binary FILE --wheel FILE [--folder target/dist]

Called by `cargo xtask dist`, which compiles both. The folder then has: the program, stripped; the wheel; the images as archives
that `docker load` takes; what the program is made of (SBOM) and its licences; and SHA256SUMS over all of it. What cannot be
tried here is named.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCKER = ROOT / "deploy" / "docker"
# What the package promises to work with: one wheel for all, by CPython's stable interface (abi3).
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
# Where those are that this Debian does not have yet.
TESTING = "testing"
SMOKE = (
    "import rollhouse; envs = rollhouse.make_vec('CartPole-v1', 4, seed=1); envs.reset(); "
    "envs.step([0, 1, 0, 1]); print(rollhouse.__version__)"
)


def run(*command: str | Path, **options: object) -> str:
    line = [str(word) for word in command]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, **options)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(line)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def oldest_glibc(binary: Path) -> str:
    """The C library that the binary needs at least, by the versions of the symbols that it takes from it."""
    found = set(re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", binary)))
    return ".".join(max(found, key=lambda version: tuple(map(int, version))))


def licences(bom: dict) -> str:
    """Name and licence of every crate in the program, and the texts that they come with."""
    metadata = json.loads(run("cargo", "metadata", "--format-version", "1", "--locked"))
    folders = {(one["name"], one["version"]): Path(one["manifest_path"]).parent for one in metadata["packages"]}
    parts = ["Rollhouse is licensed under MIT or Apache-2.0, at your option. It contains the following.\n"]
    texts: dict[str, list[str]] = {}
    for part in bom["components"]:
        name = f"{part['name']} {part['version']}"
        parts.append(f"{name}: {part['licenses'][0]['expression']}")
        folder = folders[part["name"], part["version"]]
        files = [*folder.glob("LICEN[CS]E*"), *folder.glob("COPYING*"), *folder.glob("NOTICE*")]
        for file in sorted(file for file in files if file.is_file()):
            texts.setdefault(file.read_text(errors="replace").strip(), []).append(f"{name} ({file.name})")
    parts += [f"\n{'=' * 80}\n{', '.join(names)}\n{'=' * 80}\n{text}" for text, names in texts.items()]
    return "\n".join(parts) + "\n"


def images(folder: Path, binary: Path, wheel: Path, version: str) -> list[str]:
    """Builds the images and keeps each as an archive."""
    with tempfile.TemporaryDirectory() as wheels:
        shutil.copy(wheel, wheels)
        # What it needs, for the interpreter of the image, which is this Debian's.
        run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--python-version",
            debians_python(), "--dest", wheels, wheel)
        print(run(DOCKER / "build.sh", "--binary", binary, "--wheels", wheels, "--tag", version, "rollhouse",
                  "rollhouse-python"), end="")
    names = [f"rollhouse:{version}", f"rollhouse-python:{version}"]
    for name in names:
        archive = folder / f"{name.replace(':', '-')}-image.tar.gz"
        with subprocess.Popen(["docker", "save", name], stdout=subprocess.PIPE) as saved, open(archive, "wb") as out:
            # Without a time in it, the same image makes the same archive.
            with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=6, mtime=0) as packed:
                shutil.copyfileobj(saved.stdout, packed)
        assert saved.returncode == 0, name
    return names


def debians_python() -> str:
    base = run("docker", "image", "inspect", "--format", "{{.Id}}", "rollhouse-base:python").strip() if subprocess.run(
        ["docker", "image", "inspect", "rollhouse-base:python"], capture_output=True).returncode == 0 else run(
        DOCKER / "make-base.sh", "python").strip()
    told = run("docker", "run", "--rm", base, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    return told.strip()


def interpreters() -> dict[str, Path]:
    """Of the wanted ones those that are on this machine: on the path, or of pyenv."""
    found = {}
    for wanted in PYTHONS:
        places = [shutil.which(f"python{wanted}")]
        places += sorted(Path.home().glob(f".pyenv/versions/{wanted}.*/bin/python{wanted}"))
        for place in filter(None, places):
            # A shim of pyenv is there for versions that are not.
            asked = subprocess.run([str(place), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                                   capture_output=True, text=True)
            if asked.stdout.strip() == wanted:
                found[wanted] = Path(place)
    return found


def try_wheel(wheel: Path, version: str) -> list[str]:
    """Installs it into an empty environment of each interpreter; gives what was not tried."""
    here = interpreters()
    for wanted, python in here.items():
        with tempfile.TemporaryDirectory() as folder:
            run(python, "-m", "venv", folder)
            inside = Path(folder) / "bin"
            run(inside / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
            assert run(inside / "python", "-c", SMOKE).strip() == version
            assert run(inside / "rollhouse", "-V").split()[1] == version
        print(f"tried: the wheel on CPython {wanted}")
    skipped = []
    for wanted in (wanted for wanted in PYTHONS if wanted not in here):
        if why := try_wheel_on_debians(wanted, wheel, version):
            skipped.append(f"the wheel on CPython {wanted}: there is none here, {why}")
        else:
            print(f"tried: the wheel on CPython {wanted} of Debian {TESTING}")
    return skipped


def try_wheel_on_debians(wanted: str, wheel: Path, version: str) -> str | None:
    """The same on an interpreter of Debian's next release, in a system of its own; why not, if it cannot be."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return "and a system of Debian's next release wants root and debootstrap"
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        made = subprocess.run(["debootstrap", "--variant=minbase", f"--include=python{wanted}", TESTING, tree],
                              capture_output=True, text=True)
        if made.returncode != 0:
            return f"and debootstrap makes no Debian {TESTING} with it: {(made.stdout + made.stderr).strip().splitlines()[-1]}"
        platforms = [word for minor in (17, 27, 28, 34) for word in ("--platform", f"manylinux_2_{minor}_{platform.machine()}")]
        # From outside, for that interpreter: the system needs neither pip nor a network.
        run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
            "--python-version", wanted, *platforms, "--target", tree / "opt" / "wheel", wheel)
        inside = ["chroot", tree, "/usr/bin/env", "PYTHONPATH=/opt/wheel", f"python{wanted}"]
        assert run(*inside, "-c", SMOKE).strip() == version
        assert run(*inside, "-m", "rollhouse", "-V").split()[1] == version
    return None


def try_binary(binary: Path, version: str) -> None:
    """Runs it where there is the C library and nothing else, as nobody, without a network."""
    line = ["docker", "run", "--rm", "--network", "none", "--read-only", "--tmpfs", "/data:mode=1777", "--user", "65532:65532",
            "--cap-drop", "ALL", "--volume", f"{binary.resolve()}:/rollhouse:ro", "rollhouse-base:minimal", "/rollhouse"]
    assert run(*line, "-V").split()[1] == version
    report = json.loads(run(*line, "rollout", "--env", "CartPole-v1", "--lanes", "8", "--episodes", "50", "--data", "/data/r",
                            "--json"))
    assert report["episodes"] == 50
    print("tried: the binary in a container of the C library alone")


def try_images(folder: Path, names: list[str], version: str) -> None:
    """Loads each from its archive, and runs it."""
    for name in names:
        run("docker", "image", "rm", "--force", name)
        run("docker", "load", "--input", folder / f"{name.replace(':', '-')}-image.tar.gz")
        line = ["docker", "run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL"]
        assert run(*line, name, "-V").split()[1] == version
        if "python" in name:
            assert run(*line, "--entrypoint", "python", name, "-c", SMOKE).strip() == version
        print(f"tried: {name}, loaded from its archive")


def checksums(folder: Path) -> None:
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines))
    subprocess.run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], cwd=folder, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=ROOT / "target" / "dist")
    args = parser.parse_args()
    folder = args.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    version = run(args.binary, "-V").split()[1]
    binary = folder / f"rollhouse-{version}-{platform.machine()}-linux-gnu"
    run("strip", "-o", binary, args.binary.resolve())
    glibc = oldest_glibc(binary)
    print(f"the binary needs glibc {glibc} or newer, the wheel what its name says: {args.wheel.name}")
    wheel = Path(shutil.copy(args.wheel, folder))
    assert f"-cp310-abi3-manylinux_{glibc.replace('.', '_')}_" in wheel.name, "it needs what the binary needs"
    bom = json.loads(run(sys.executable, DOCKER / "sbom.py", version))
    (folder / "sbom.cdx.json").write_text(json.dumps(bom, indent=1) + "\n")
    (folder / "LICENCES.txt").write_text(licences(bom))
    skipped = try_wheel(wheel, version)
    if subprocess.run(["docker", "version"], capture_output=True).returncode == 0:
        names = images(folder, args.binary.resolve(), wheel, version)
        try_binary(binary, version)
        try_images(folder, names, version)
    else:
        skipped += ["images, and the binary in a clean container: no Docker engine answers"]
    checksums(folder)
    for path in sorted(folder.iterdir()):
        print(f"{os.path.getsize(path) / 1e6:9.2f} MB  {path.name}")
    for what in skipped:
        print(f"skipped: {what}")


if __name__ == "__main__":
    main()
