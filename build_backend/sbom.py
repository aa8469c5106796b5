"""The bill of materials of an installed kraft, as CycloneDX 1.6: what it is made of, in which versions.

    python build_backend/sbom.py [EXTRA ...] > kraft.cdx.json

The packages of this environment are told (`make setup` installs those of the lock file), beginning at kraft
and its extras. The same environment gives the same bytes: the time is SOURCE_DATE_EPOCH, the serial number a
digest of what is listed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "kraft"


def needed_by(found: Distribution, extras: Sequence[str]) -> Iterator[Requirement]:
    """On this platform."""
    for text in found.requires or ():
        requirement = Requirement(text)
        environments = [{"extra": each} for each in ("", *extras)]
        if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
            yield requirement


def component_of(found: Distribution, kind: ComponentType) -> Component:
    name, version = canonicalize_name(found.metadata["Name"]), found.version
    expression = found.metadata.get("License-Expression")
    return Component(
        name=name,
        version=version,
        type=kind,
        bom_ref=f"{name}=={version}",
        purl=PackageURL("pypi", name=name, version=version),
        licenses=[LicenseFactory().make_from_string(expression)] if expression else [],
    )


def bill(extras: Sequence[str]) -> Bom:
    """What is not installed, because another platform needs it, is left out."""
    root = distribution(ROOT)
    components = {ROOT: component_of(root, ComponentType.APPLICATION)}
    depends: dict[str, set[str]] = {}
    waiting: list[tuple[str, Distribution, Sequence[str]]] = [(ROOT, root, extras)]
    visited: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        name, found, wanted = waiting.pop()
        if (name, tuple(wanted)) in visited:
            continue
        visited.add((name, tuple(wanted)))
        for requirement in needed_by(found, wanted):
            needed = canonicalize_name(requirement.name)
            try:
                other = distribution(needed)
            except PackageNotFoundError:
                continue
            components.setdefault(needed, component_of(other, ComponentType.LIBRARY))
            depends.setdefault(name, set()).add(needed)
            waiting.append((needed, other, sorted(requirement.extras)))
    bom = Bom(components=[each for name, each in sorted(components.items()) if name != ROOT])
    bom.metadata.component = components[ROOT]
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    listed = "\n".join(sorted(each.bom_ref.value or "" for each in components.values()))
    bom.serial_number = uuid5(NAMESPACE_URL, listed)
    for name, each in sorted(components.items()):
        bom.register_dependency(each, [components[other] for other in sorted(depends.get(name, ()))])
    return bom


def main(extras: Sequence[str]) -> None:
    outputter = make_outputter(bill(extras), OutputFormat.JSON, SchemaVersion.V1_6)
    sys.stdout.write(outputter.output_as_string(indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
