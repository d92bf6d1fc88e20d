"""The embedded Hub's memory: one SQLite file, write-ahead log, flushed to disk at every commit."""

from __future__ import annotations

import queue
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hubtools.errors import EnvironmentFailure

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS users (
  name TEXT PRIMARY KEY COLLATE NOCASE, kind TEXT NOT NULL, admin INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS tokens (
  digest TEXT PRIMARY KEY, user TEXT NOT NULL, role TEXT NOT NULL, created INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS repos (
  id INTEGER PRIMARY KEY, type TEXT NOT NULL,
  owner TEXT NOT NULL COLLATE NOCASE, name TEXT NOT NULL COLLATE NOCASE,
  private INTEGER NOT NULL, gated TEXT NOT NULL DEFAULT '', sdk TEXT NOT NULL DEFAULT '',
  created INTEGER NOT NULL, UNIQUE (type, owner, name));
CREATE TABLE IF NOT EXISTS refs (
  repo INTEGER NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
  ref TEXT NOT NULL, oid TEXT NOT NULL, message TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (repo, ref));
CREATE TABLE IF NOT EXISTS commits (
  repo INTEGER NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
  oid TEXT NOT NULL, PRIMARY KEY (repo, oid));
CREATE TABLE IF NOT EXISTS git_objects (
  oid TEXT PRIMARY KEY, kind TEXT NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blobs (
  oid TEXT PRIMARY KEY, sha256 TEXT NOT NULL, size INTEGER NOT NULL, lfs INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS collections (
  slug TEXT PRIMARY KEY, owner TEXT NOT NULL COLLATE NOCASE, data TEXT NOT NULL);
"""


class Database:
    """Connections to `<root>/hub.sqlite`, lent one per unit of work; used from many threads.

    Rows come back as `sqlite3.Row`. A unit that raises leaves no trace.

    Raises:
        EnvironmentFailure: HT607 when the file is no database, or one of another layout.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._path = root / "hub.sqlite"
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        try:
            with self._lent() as connection:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, _VERSION):
                    raise self._unusable(f"it has layout {version}, this program {_VERSION}")
                connection.execute("PRAGMA journal_mode = WAL")  # the file remembers it
                connection.executescript(f"{_SCHEMA} PRAGMA user_version = {_VERSION};")
        except sqlite3.Error as error:
            raise self._unusable(str(error)) from error

    def _unusable(self, why: str) -> EnvironmentFailure:
        return EnvironmentFailure(
            "HT607",
            f"the embedded Hub's database cannot be used: {why}",
            where=str(self._path),
            detail=("Nothing in it was changed.",),
            next="hubtools hub serve --root ANOTHER_DIRECTORY",
        )

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent snapshot; writes by others are not seen until it ends."""
        with self._lent() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The one writer; when the block ends well, everything in it is on disk."""
        with self._lent() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close the idle connections; the last one folds the log into the file."""
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return

    @contextmanager
    def _lent(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._idle.put(connection)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=60, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection
