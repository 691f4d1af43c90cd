"""The files of a pipeline, by Hadoop: on a local disk, on hdfs:// or wherever else Spark can write to."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from coterie.errors import CoterieError


class HadoopFiles:
    """The files below one directory. Names are relative to it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        self._jvm: Any = spark._jvm  # noqa: SLF001  there is no other way to Hadoop's file systems
        self._configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._system = self._path("").getFileSystem(self._configuration)
        self.uri = str(self._system.makeQualified(self._path("")))
        """The directory with its file system, as in `file:/tables`."""

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.full(name))

    def full(self, name: str) -> str:
        """Return the path of a file as Spark takes it."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._path(name)))

    def names(self, folder: str) -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist."""
        place = self._path(folder)
        if not self._system.exists(place):
            return []
        return sorted(each.getPath().getName() for each in self._system.listStatus(place))

    def size(self, name: str) -> int:
        """Return the bytes of all files below a directory."""
        return int(self._system.getContentSummary(self._path(name)).getLength())

    def modified_ms(self, name: str) -> int:
        return int(self._system.getFileStatus(self._path(name)).getModificationTime())

    def make(self, folder: str) -> None:
        """Make an empty directory."""
        self._system.mkdirs(self._path(folder))

    def delete(self, name: str) -> None:
        """Delete a file or a directory with all that it contains. One that does not exist is no error."""
        self._system.delete(self._path(name), True)

    def move(self, source: str, target: str) -> None:
        """Rename a file or a directory; what `target` was before is deleted."""
        place = self._path(target)
        self._system.delete(place, True)
        self._system.mkdirs(place.getParent())
        if not self._system.rename(self._path(source), place):
            raise CoterieError(f"{self.full(source)} could not be renamed to {target}: is the directory writable?")

    def read_text(self, name: str) -> str:
        stream = self._system.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        """Write a small file whole: it is written aside and renamed, so that there is always the old one or the new."""
        aside = f"_aside/{name.replace('/', '-')}"
        stream = self._system.create(self._path(aside), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._system.mkdirs(self._path(name).getParent())
        self._rename_over(aside, name)

    def _rename_over(self, source: str, target: str) -> None:
        """Rename a file in one step, over the one that is there. `FileSystem.rename` does not do so everywhere."""
        hadoop = self._jvm.org.apache.hadoop.fs
        where = self._system.getUri()
        options = self._jvm.java.lang.reflect.Array.newInstance(self._class("org.apache.hadoop.fs.Options$Rename"), 1)
        options[0] = hadoop.Options.Rename.OVERWRITE
        context = hadoop.FileContext.getFileContext(where, self._configuration)
        context.rename(self._path(source), self._path(target), options)

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name)
