"""How this installation runs: its hot modules compiled by mypyc (setup.py), or all of it as Python.

The same source either way: Python finds an extension module before the .py beside it.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final

LIBRARY: Final = "kraft.compiled__mypyc"


def variant() -> str:
    """`compiled` or `pure Python`."""
    return "pure Python" if find_spec(LIBRARY) is None else "compiled"


def described() -> str:
    """`kraft 0.1.0, compiled`."""
    try:
        number = version("kraft")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        number = "(not installed)"
    return f"kraft {number}, {variant()}"
