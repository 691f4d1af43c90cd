"""CRC-32C, the checksum of record batches and of the files beside them.

It is loaded from the extension of the package crc32c. The package itself imports a command line and reads the metadata
of its installation, which takes a tenth of the time that a broker needs to start.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

__all__ = ["crc32c"]


def _of_extension() -> Callable[..., int]:
    package = find_spec("crc32c")
    spec = None if package is None else PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("no extension")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., int] = module.crc32c
    return found


def _of_package() -> Callable[..., int]:
    import crc32c as package

    found: Any = package.crc32c
    return found  # type: ignore[no-any-return]


try:
    crc32c = _of_extension()
except (ImportError, AttributeError):  # another release of the package may be built in another way
    crc32c = _of_package()
