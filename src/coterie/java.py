"""Find Java as Spark's launcher does: in JAVA_HOME if it is set, else on the PATH."""

from __future__ import annotations

import os
import shutil
import subprocess


def find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


def why_no_java(who: str, least: int = 0) -> str | None:
    """Return why `who`, which needs this version or a newer one, cannot use Java here, or None."""
    java, wanted = find_java(), f"Java {least} or newer" if least else "Java"
    if java is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME, {home}, has none" if home else "there is none on the PATH, and JAVA_HOME is not set"
        return f"{who} needs {wanted}, and {where}"
    if not least:
        return None
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    version = output.partition('"')[2].partition('"')[0].partition(".")[0]
    if version.isdigit() and int(version) >= least:
        return None
    return f"{who} needs {wanted}, and {java} is {version or 'of an unknown version'}"
