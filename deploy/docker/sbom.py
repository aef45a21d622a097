"""What the program is made of, as CycloneDX 1.5 JSON.

    sbom.py VERSION > sbom.cdx.json       crates of the binary, as cargo resolves them for this machine
    sbom.py --summary sbom.cdx.json       how many there are, by licence

Debian's packages of a base image are told in the image itself, in /var/lib/dpkg, where scanners look for them.
"""

from __future__ import annotations

import collections
import json
import re
import subprocess
import sys


def crates() -> list[dict]:
    """Each crate that is linked into the binary, once."""
    tree = ["cargo", "tree", "--locked", "--package", "rollhouse-cli", "--features", "gate,onnx,openra"]
    tree += ["--edges", "normal", "--prefix", "none"]
    lines = subprocess.run([*tree, "--format", "{p}|{l}"], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in lines.splitlines():
        package, _, licence = line.removesuffix(" (*)").partition("|")
        name, version, *place = package.split(" ", 2)
        if place and place[0].startswith("(proc-macro)"):
            continue
        version = version.removeprefix("v")
        # The older way to write the choice.
        licence = re.sub(r" ?/ ?", " OR ", licence.removesuffix(" (*)"))
        component = {"type": "library", "name": name, "version": version, "licenses": [{"expression": licence}]}
        # Ours come from no registry.
        if not name.startswith("rollhouse-"):
            component["purl"] = f"pkg:cargo/{name}@{version}"
        found[name, version] = component
    return [found[key] for key in sorted(found)]


def main() -> None:
    if sys.argv[1] == "--summary":
        with open(sys.argv[2]) as file:
            components = json.load(file)["components"]
        licences = collections.Counter(component["licenses"][0]["expression"] for component in components)
        told = ", ".join(f"{count} {licence}" for licence, count in licences.most_common())
        print(f"{len(components)} crates: {told}")
        return
    program = {"type": "application", "name": "rollhouse", "version": sys.argv[1]}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": crates(),
    }
    json.dump(bom, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
