"""What a run's commits cost SQLite alone: the rows of a run that a daemon wrote,
written again under other ids, with the daemon's schema and settings."""

import os
import shutil
import sqlite3
import time

SETTINGS = ("journal_mode = WAL", "synchronous = FULL",
            "locking_mode = EXCLUSIVE", "foreign_keys = ON",
            "wal_autocheckpoint = 1000", "journal_size_limit = 16777216")


def open_db(path):
    db = sqlite3.connect(path, isolation_level=None)
    for setting in SETTINGS:
        db.execute(f"PRAGMA {setting}").fetchall()
    return db


class Rows:
    """A run's rows of each table, as statements with the ids left open."""

    TABLES = ("sandbox", "command", "event", "idempotency", "blob")

    def __init__(self, db):
        self.sbx, self.cmd = db.execute(
            "SELECT sandbox, id FROM command WHERE status = 3 AND kind = 1"
            " ORDER BY seq DESC LIMIT 1").fetchone()
        self.of = {}
        for table in self.TABLES:
            names = [r[1] for r in db.execute(f"PRAGMA table_info({table})")
                     if r[1] != "seq"]
            key = {"sandbox": "id", "blob": "owner"}.get(table, "sandbox")
            ident = self.cmd if table == "blob" else self.sbx
            rows = db.execute(f"SELECT {', '.join(names)} FROM {table} WHERE "
                              f"{key} = ?", (ident,)).fetchall()
            sql = (f"INSERT INTO {table}({', '.join(names)}) VALUES("
                   f"{', '.join('?' * len(names))})").replace("key", '"key"')
            self.of[table] = (sql, names, rows)

    def put(self, db, table, i, rows=None):
        sql, names, have = self.of[table]
        ids = {self.sbx: f"sbx_{i:026d}", self.cmd: f"cmd_{i:026d}"}
        for row in have if rows is None else have[rows]:
            db.execute(sql, [f"k{i}" if n == "key" else ids.get(v, v)
                             if isinstance(v, str) else v
                             for n, v in zip(names, row)])

    def begin(self, db, i):
        """As store_run_begin."""
        db.execute("BEGIN")
        self.put(db, "sandbox", i)
        self.put(db, "command", i)
        self.put(db, "event", i, slice(0, 2))
        self.put(db, "idempotency", i)
        db.execute("COMMIT")

    def end(self, db, i):
        """As store_update with output."""
        db.execute("BEGIN")
        for table, ident in (("sandbox", f"sbx_{i:026d}"),
                             ("command", f"cmd_{i:026d}")):
            _, names, rows = self.of[table]
            db.execute(f"UPDATE {table} SET status = ?, ended_ms = ?, rec = ?"
                       " WHERE id = ?",
                       [rows[0][names.index(n)]
                        for n in ("status", "ended_ms", "rec")] + [ident])
        self.put(db, "blob", i)
        self.put(db, "event", i, slice(2, None))
        db.execute("COMMIT")


def rows(table, state, n):
    """Both commits of a run, in a copy of a stopped daemon's database."""
    path = os.path.join(state, "commits.db")
    shutil.copy(os.path.join(state, "hutch.db"), path)
    db = open_db(path)
    one = Rows(db)
    times = []
    for i in range(n):
        began = time.monotonic()
        one.begin(db, i)
        one.end(db, i)
        times.append((time.monotonic() - began) * 1e3)
    db.close()
    os.unlink(path)
    table.add("both commits of a run, SQLite alone", "sqlite", times, "ms")
    table.add("both commits of a run, SQLite alone: a second", "sqlite",
              [n / sum(times) * 1e3], "1/s")


def fill(state, n):
    """n more runs in a stopped daemon's database."""
    db = open_db(os.path.join(state, "hutch.db"))
    one = Rows(db)
    db.execute("PRAGMA synchronous = OFF")
    for i in range(n):
        one.begin(db, i)
        one.end(db, i)
    db.close()
