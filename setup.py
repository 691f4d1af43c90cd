"""The one compiled file. It is optional: where there is no compiler, its twin in Python does the same, slower."""

from __future__ import annotations

from importlib.util import find_spec

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "coterie.wire._fast_records",
            ["src/coterie/wire/_fast_records.pyx"],
            depends=["src/coterie/wire/_fast_columns.pxi", "src/coterie/wire/_fast_writer.pxi"],
            extra_compile_args=["-g0"],
            optional=True,
        )
    ],
    options={"build_ext": {"cython_c_in_temp": True}} if find_spec("Cython") else {},  # the C file is no source
)
