"""The compiled files. They are optional: where there is no compiler, Python does the same, slower.

COTERIE_PURE=1 does not try: a wheel for every machine, which needs neither a compiler nor Cython.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FAST_RECORDS = Extension(
    "coterie.protocol._fast_records",
    ["src/coterie/protocol/_fast_records.pyx"],
    depends=[
        f"src/coterie/protocol/_fast_{part}.pxi"
        for part in ("columns", "commit", "iteration", "quick_append", "writer")
    ],
    extra_compile_args=["-g0"],
    optional=True,
)
FAST_DISK = Extension(
    "coterie.storage._fast_disk",
    ["src/coterie/storage/_fast_disk.pyx"],
    extra_compile_args=["-g0"],
    libraries=["pthread"],
    optional=True,
)
EXTENSIONS = [FAST_RECORDS, FAST_DISK] if sys.platform == "linux" else [FAST_RECORDS]


class SaysWhatWasBuilt(build_ext):
    def initialize_options(self) -> None:
        super().initialize_options()
        self.cython_c_in_temp = True  # the C file is no source

    def run(self) -> None:
        super().run()
        is_compiled = Path(self.get_ext_fullpath(FAST_RECORDS.name)).exists()
        wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
        if wheel is not None and not is_compiled:
            self.distribution.ext_modules = []
            wheel.root_is_pure = True  # its name then says so: py3-none-any
        print(  # noqa: T201  seen with pip install -v; afterwards coterie --version says it
            "coterie: record batches are read and written by compiled code"
            if is_compiled
            else "coterie: nothing could be compiled (see above), so record batches are read and written in plain "
            "Python: the same, slower. With a C compiler and Python's headers, install it again."
        )


setup(
    ext_modules=EXTENSIONS if os.environ.get("COTERIE_PURE", "0") in {"", "0"} else [],
    cmdclass={"build_ext": SaysWhatWasBuilt},
)
