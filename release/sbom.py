"""The bill of materials of a package: CycloneDX 1.6 in JSON, the same bytes for the same package.

Nothing of others is in our packages, so that a bill lists the package and what it asks for when it
is installed; which versions these are is decided there. Optional requirements are `optional`.
"""

import json
import tomllib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["Need", "bill", "fault", "npm_bill", "python_bill"]

_NAMESPACE = uuid.UUID("5d6a4a8e-6f5e-5c5e-9d0b-6b1f3f0e8a11")  # of our serial numbers alone
_RANGE = "flow2onnx:requirement"


@dataclass(frozen=True, order=True)
class Need:
    """A requirement: its kind (`pypi`, `npm`, `generic`), name, range in words, if it is needed."""

    kind: str
    name: str
    range: str
    is_optional: bool


def python_bill(folder: Path, time: int) -> bytes:
    """The bill of a distribution for Python, of its `pyproject.toml`."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    needs = {_python_need(text, is_optional=False) for text in project["dependencies"]}
    names = {need.name for need in needs} | {canonicalize_name(project["name"])}
    for text in (t for e in project.get("optional-dependencies", {}).values() for t in e):
        need = _python_need(text, is_optional=True)
        needs |= set() if need.name in names else {need}
    return bill("pypi", project["name"], project["version"], project["license"], needs, time)


def npm_bill(folder: Path, time: int) -> bytes:
    """The bill of a package for npm, of its `package.json`."""
    package = json.loads((folder / "package.json").read_text("utf-8"))
    optional = {k for k, v in package.get("peerDependenciesMeta", {}).items() if v.get("optional")}
    given = {**package.get("dependencies", {}), **package.get("peerDependencies", {})}
    needs = {Need("npm", name, text, name in optional) for name, text in given.items()}
    return bill("npm", package["name"], package["version"], package["license"], needs, time)


def bill(
    kind: str, name: str, version: str, licence: str, needs: Iterable[Need], time: int
) -> bytes:
    """The bill of a package: itself, and a component for each requirement."""
    own = Component(
        name=name, version=version, type=ComponentType.LIBRARY, bom_ref=f"{kind}/{name}",
        purl=PackageURL(kind, name=name, version=version),
        licenses=[LicenseFactory().make_from_string(licence)],
    )  # fmt: skip
    serial = uuid.uuid5(_NAMESPACE, f"{kind}/{name}/{version}")
    made = Bom(serial_number=serial)
    made.metadata.timestamp = datetime.fromtimestamp(time, UTC)
    made.metadata.component = own
    by_name = groupby(sorted(needs), lambda need: (need.kind, need.name))
    components = [_component(list(same)) for _, same in by_name]
    for component in components:
        made.components.add(component)
    made.register_dependency(own, components)
    text = JsonV1Dot6(made).output_as_string(indent=1)
    return (json.dumps(_in_order(json.loads(text)), indent=1, sort_keys=True) + "\n").encode()


def fault(content: bytes) -> str | None:
    """The fault of a bill by the schema of CycloneDX 1.6, or None."""
    found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(content.decode())
    return None if found is None else str(found)


def _component(needs: Sequence[Need]) -> Component:
    """What one or several requirements ask for, each in its range."""
    kind, name = needs[0].kind, needs[0].name
    is_optional = all(need.is_optional for need in needs)
    return Component(
        name=name, type=ComponentType.LIBRARY, bom_ref=f"{kind}/{name}",
        purl=PackageURL(kind, name=name),
        scope=ComponentScope.OPTIONAL if is_optional else ComponentScope.REQUIRED,
        properties=[Property(name=_RANGE, value=need.range or "any") for need in needs],
    )  # fmt: skip


def _python_need(text: str, *, is_optional: bool) -> Need:
    parsed = Requirement(text)
    range_ = str(parsed.specifier) + (f"; {parsed.marker}" if parsed.marker else "")
    return Need("pypi", canonicalize_name(parsed.name), range_, is_optional)


def _in_order(value: object) -> object:
    """A bill with its lists, which are sets, sorted by their text."""
    if isinstance(value, dict):
        return {key: _in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_in_order(item) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    return value
