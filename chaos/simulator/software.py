"""What a simulated node runs: this version of the product, or an older one beside it in the same process.

    git archive COMMIT -> a directory -> older(directory): its packages under another name
    -> Software -> Cluster: a node starts with its own

An older version's modules are compiled from its sources with one change: they import each other under that
other name, so both versions are whole, and neither sees the other. What they have in common is Python, the
libraries, and the two modules whose classes the oracles compare: error codes and the model. PySyncObj is no
such library: each version gives it a clock of its own, so each has its own copy.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any, Final

from kraft.config.node_config import Config
from kraft.node.environment import NodeEnvironment
from kraft.node.node import Node
from kraft.storage.formatter import format_storage, read_storage

PACKAGES: Final = frozenset({"kraft", "metadata_quorum", "data_plane", "fetch"})
COPIED: Final = "pysyncobj"
SHARED: Final = frozenset({"metadata_quorum.foundation.errors", "metadata_quorum.foundation.model"})


@dataclass(frozen=True, slots=True)
class Software:
    """A version, by what starts a node of it. Of an older one the types are its own."""

    config: Callable[[dict[str, str]], Config]
    format_storage: Callable[..., Any]
    read_storage: Callable[..., Any]
    environment: Callable[..., NodeEnvironment]
    node: Callable[..., Node]


THIS: Final = Software(Config.from_properties, format_storage, read_storage, NodeEnvironment, Node)


def older(directory: Path) -> Software:
    """The version whose packages lie in that directory. Raises ImportError where it cannot be started so."""
    name = f"older_{sum(isinstance(finder, OlderPackages) for finder in sys.meta_path)}"
    sys.meta_path.insert(0, OlderPackages(name, directory))

    def of(module: str) -> Any:
        return import_module(f"{name}.{module}")

    storage = of("kraft.storage.formatter")
    return Software(
        of("kraft.config.node_config").Config.from_properties,
        storage.format_storage,
        storage.read_storage,
        of("kraft.node.environment").NodeEnvironment,
        of("kraft.node.node").Node,
    )


class OlderPackages(MetaPathFinder):
    """Finds `name.kraft.…` in a directory."""

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        root, *below = fullname.split(".")
        if root != self._name:
            return None
        place = (_place_of(COPIED) if below[:1] == [COPIED] else self._directory).joinpath(*below)
        if not place.is_dir():
            file = place.with_suffix(".py")
            return spec_from_file_location(fullname, file, loader=Renaming(self._name, file))
        if not (file := place / "__init__.py").exists():
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(place)]
            return spec
        return spec_from_file_location(
            fullname, file, loader=Renaming(self._name, file), submodule_search_locations=[str(place)]
        )


def _place_of(library: str) -> Path:
    """The directory in which it is installed."""
    spec = find_spec(library)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


class Renaming(SourceLoader):
    """Loads a module that imports the others of its version."""

    def __init__(self, name: str, file: Path) -> None:
        self._name = name
        self._file = file

    def get_filename(self, fullname: str) -> str:
        return str(self._file)

    def get_data(self, path: str | bytes) -> bytes:
        return self._file.read_bytes()

    def source_to_code(  # type: ignore[override]  # of source alone, and at one level of optimization
        self, data: bytes, path: str
    ) -> CodeType:
        renamed = _Imports(self._name).visit(ast.parse(data))
        return compile(ast.fix_missing_locations(renamed), path, "exec", dont_inherit=True)


class _Imports(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self._name = name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        module = node.module or ""
        if not node.level and module not in SHARED:
            node.module = self._renamed(module)
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        """`import kraft.x` binds `kraft`, which has one name; our code says `from`. Raises ImportError."""
        for each in node.names:
            if each.asname is not None:
                each.name = self._renamed(each.name)
            elif each.name.partition(".")[0] in PACKAGES:
                raise ImportError(f"line {node.lineno}: import {each.name}: only `from` can be renamed")
        return node

    def _renamed(self, module: str) -> str:
        is_its_own = module.partition(".")[0] in {*PACKAGES, COPIED}
        return f"{self._name}.{module}" if is_its_own else module
