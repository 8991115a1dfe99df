/*
 * The schema, as the list of steps that made it.
 *
 * Append only: a step that was released is never changed, and the number of
 * steps done is the database's user_version.  Each step and its number are
 * one transaction, so a crash leaves the old or the new, never a mixture.  A
 * database with more steps than this program knows is refused: an older
 * program would not understand what it reads.
 *
 * Tables hold what is searched for as columns, and the record as one CBOR
 * blob `rec` (api/records.cddl).  `seq` numbers rows in the order they came.
 * Enums are stored by number (record.h).  `is_quarantined` = the record could
 * not be read; it is kept as it is for a person to look at.
 */
#include "db.h"
#include "log.h"
#include <stdio.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static const char *const steps[] = {
	/* 1: first release */
	"CREATE TABLE environment("
	"  id TEXT PRIMARY KEY, plan INTEGER NOT NULL,"
	"  is_enabled INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
	"  rec BLOB NOT NULL) STRICT, WITHOUT ROWID;"

	"CREATE TABLE graph("
	"  environment TEXT NOT NULL, name TEXT NOT NULL,"
	"  created_ms INTEGER NOT NULL, rec BLOB NOT NULL,"
	"  PRIMARY KEY(environment, name)) STRICT, WITHOUT ROWID;"

	"CREATE TABLE \"key\"("
	"  seq INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE,"
	"  environment TEXT NOT NULL REFERENCES environment(id),"
	"  name TEXT NOT NULL, created_ms INTEGER NOT NULL,"
	"  revoked_ms INTEGER NOT NULL DEFAULT 0, rec BLOB NOT NULL,"
	"  UNIQUE(environment, name)) STRICT;"

	"CREATE TABLE plan("
	"  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
	"  rec BLOB NOT NULL) STRICT;"

	"CREATE TABLE \"grant\"("
	"  id TEXT PRIMARY KEY, environment TEXT NOT NULL,"
	"  graph TEXT NOT NULL, operation TEXT NOT NULL,"
	"  expires_ms INTEGER NOT NULL, rec BLOB NOT NULL)"
	"  STRICT, WITHOUT ROWID;"
	"CREATE INDEX grant_expires ON \"grant\"(expires_ms);"

	"CREATE TABLE budget("
	"  id TEXT PRIMARY KEY, environment TEXT NOT NULL,"
	"  graph TEXT NOT NULL, retry_at_ms INTEGER NOT NULL,"
	"  rec BLOB NOT NULL) STRICT, WITHOUT ROWID;"

	"CREATE TABLE sandbox("
	"  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
	"  environment TEXT NOT NULL, graph TEXT NOT NULL,"
	"  status INTEGER NOT NULL, kind INTEGER NOT NULL,"
	"  template_name TEXT NOT NULL, incarnation INTEGER NOT NULL,"
	"  created_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
	"  expires_ms INTEGER NOT NULL,"
	"  is_quarantined INTEGER NOT NULL DEFAULT 0,"
	"  rec BLOB NOT NULL) STRICT;"
	"CREATE INDEX sandbox_graph ON sandbox(environment, graph);"
	"CREATE INDEX sandbox_live ON sandbox(status)"
	"  WHERE status NOT IN (6, 7, 8);"
	"CREATE INDEX sandbox_ended ON sandbox(ended_ms) WHERE ended_ms > 0;"

	"CREATE TABLE command("
	"  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
	"  sandbox TEXT NOT NULL REFERENCES sandbox(id),"
	"  environment TEXT NOT NULL, graph TEXT NOT NULL,"
	"  status INTEGER NOT NULL, kind INTEGER NOT NULL,"
	"  created_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
	"  output_erased_ms INTEGER NOT NULL DEFAULT 0,"
	"  is_quarantined INTEGER NOT NULL DEFAULT 0,"
	"  rec BLOB NOT NULL) STRICT;"
	"CREATE INDEX command_graph ON command(environment, graph);"
	"CREATE INDEX command_sandbox ON command(sandbox);"
	"CREATE INDEX command_live ON command(status) WHERE status IN (1, 2);"

	"CREATE TABLE template("
	"  id TEXT PRIMARY KEY, environment TEXT NOT NULL,"
	"  graph TEXT NOT NULL, name TEXT NOT NULL,"
	"  version INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
	"  rec BLOB NOT NULL, UNIQUE(environment, graph, name, version))"
	"  STRICT;"

	"CREATE TABLE snapshot("
	"  id TEXT PRIMARY KEY, environment TEXT NOT NULL,"
	"  graph TEXT NOT NULL, sandbox TEXT NOT NULL,"
	"  created_ms INTEGER NOT NULL, rec BLOB NOT NULL) STRICT;"
	"CREATE INDEX snapshot_graph ON snapshot(environment, graph);"

	"CREATE TABLE file("
	"  seq INTEGER PRIMARY KEY AUTOINCREMENT,"
	"  environment TEXT NOT NULL, graph TEXT NOT NULL,"
	"  sha256 BLOB NOT NULL, name TEXT NOT NULL,"
	"  uploaded_ms INTEGER NOT NULL,"
	"  deleted_ms INTEGER NOT NULL DEFAULT 0, rec BLOB NOT NULL,"
	"  UNIQUE(environment, graph, sha256)) STRICT;"

	/* Bytes too large for a record.  owner = a command's id; part: 1, 2
	 * head and tail of stdout, 3, 4 of stderr.  Or a template's: 5 its
	 * code, 6 its config.  expires_ms 0 = with its owner. */
	"CREATE TABLE blob("
	"  owner TEXT NOT NULL, part INTEGER NOT NULL,"
	"  expires_ms INTEGER NOT NULL, data BLOB NOT NULL,"
	"  PRIMARY KEY(owner, part)) STRICT;"
	"CREATE INDEX blob_expires ON blob(expires_ms) WHERE expires_ms > 0;"

	"CREATE TABLE idempotency("
	"  environment TEXT NOT NULL, graph TEXT NOT NULL,"
	"  operation TEXT NOT NULL, \"key\" TEXT NOT NULL,"
	"  request_hash BLOB NOT NULL, sandbox TEXT NOT NULL,"
	"  command TEXT NOT NULL, created_ms INTEGER NOT NULL,"
	"  rec BLOB NOT NULL,"
	"  PRIMARY KEY(environment, graph, operation, \"key\"))"
	"  STRICT, WITHOUT ROWID;"
	"CREATE INDEX idempotency_sandbox ON idempotency(sandbox);"

	/* kind: 1 a sandbox's status, 2 a command's, 3 the daemon started,
	 * 4 a record was set aside. */
	"CREATE TABLE event("
	"  seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,"
	"  environment TEXT NOT NULL, graph TEXT NOT NULL,"
	"  sandbox TEXT NOT NULL, command TEXT NOT NULL,"
	"  kind INTEGER NOT NULL, rec BLOB NOT NULL) STRICT;"
	"CREATE INDEX event_sandbox ON event(sandbox);",

	/* 2: snapshots that expire; 0 = never */
	"ALTER TABLE snapshot ADD COLUMN expires_ms INTEGER NOT NULL DEFAULT 0;"
	"CREATE INDEX snapshot_expires ON snapshot(expires_ms)"
	"  WHERE expires_ms > 0;",

	/* 3: saved templates are listed; sandboxes by their name, and by the
	 * template's version */
	"CREATE INDEX template_graph ON template(environment, graph);"
	"ALTER TABLE sandbox ADD COLUMN name TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE sandbox ADD COLUMN template_id TEXT NOT NULL DEFAULT '';"
	"CREATE INDEX sandbox_name ON sandbox(environment, graph, name)"
	"  WHERE name <> '';",

	/* 4: Files of graphs; `file` had no rows before.  file_bytes: whose are
	 * the bytes of a hash? */
	"ALTER TABLE file ADD COLUMN id TEXT NOT NULL DEFAULT '';"
	"CREATE UNIQUE INDEX file_id ON file(id);"
	"CREATE INDEX file_graph ON file(environment, graph);"
	"CREATE INDEX file_bytes ON file(sha256);",

	/* 5: places of environments and graphs (0 = the default above them),
	 * epochs, test keys; grants and budgets, whose tables were empty */
	"ALTER TABLE environment ADD COLUMN environment_places INTEGER"
	"  NOT NULL DEFAULT 0;"
	"ALTER TABLE environment ADD COLUMN graph_places INTEGER"
	"  NOT NULL DEFAULT 0;"
	"ALTER TABLE graph ADD COLUMN places INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE graph ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;"
	"ALTER TABLE \"key\" ADD COLUMN is_test INTEGER NOT NULL DEFAULT 0;"
	"DROP TABLE \"grant\";"
	"CREATE TABLE \"grant\"("
	"  hash BLOB PRIMARY KEY, environment TEXT NOT NULL,"
	"  graph TEXT NOT NULL, workflow TEXT NOT NULL, run TEXT NOT NULL,"
	"  step TEXT NOT NULL, turn INTEGER NOT NULL,"
	"  attempt INTEGER NOT NULL, operation TEXT NOT NULL,"
	"  epoch INTEGER NOT NULL, issued_ms INTEGER NOT NULL,"
	"  expires_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
	"CREATE INDEX grant_expires ON \"grant\"(expires_ms);"
	"DROP TABLE budget;"
	/* workflow '' = of all runs of the environment */
	"CREATE TABLE budget("
	"  environment TEXT NOT NULL, workflow TEXT NOT NULL,"
	"  runs_max INTEGER NOT NULL, window_ms INTEGER NOT NULL,"
	"  began_ms INTEGER NOT NULL, runs INTEGER NOT NULL,"
	"  PRIMARY KEY(environment, workflow)) STRICT, WITHOUT ROWID;",

	/* 6: snapshots and keys have events, too: 5 a snapshot was made, 6 a
	 * key was made or revoked.  The record says from 0 to 0. */
	"INSERT INTO event(at_ms, environment, graph, sandbox, command, kind,"
	"  rec) SELECT created_ms, environment, graph, id, '', 5,"
	"  x'a500010100020003000460' FROM snapshot ORDER BY rowid;"
	"INSERT INTO event(at_ms, environment, graph, sandbox, command, kind,"
	"  rec) SELECT max(created_ms, revoked_ms), environment, '',"
	"  environment, name, 6, x'a500010100020003000460' FROM \"key\""
	"  ORDER BY seq;",
};

int db_schema_version(void)
{
	return (int)N_OF(steps);
}

/* One number; -1 when it cannot be read. */
static int64_t number(struct db *db, const char *sql)
{
	sqlite3_stmt *st;
	int64_t v = -1;

	if (sqlite3_prepare_v2(db->h, sql, -1, &st, NULL))
		return -1;
	if (sqlite3_step(st) == SQLITE_ROW)
		v = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return v;
}

int db_identify(struct db *db, struct err *e)
{
	int64_t version = number(db, "PRAGMA user_version");
	int64_t id = number(db, "PRAGMA application_id");
	int64_t tables = number(db, "SELECT count(*) FROM sqlite_schema");

	if (version < 0 || id < 0 || tables < 0)
		return err_set(e, ERR_INTERNAL, NULL,
			       "the database %s cannot be read: %s; nothing "
			       "was changed%s",
			       db->path, sqlite3_errmsg(db->h), db_advice(db));
	if (id != DB_APPLICATION_ID && (id || version || tables))
		return err_set(e, ERR_INTERNAL, NULL,
			       "%s is the database of another program "
			       "(application id %#llx, ours is %#x)",
			       db->path, (unsigned long long)id,
			       DB_APPLICATION_ID);
	if (version > db_schema_version())
		return err_set(e, ERR_INTERNAL, NULL,
			       "the database %s has schema version %lld, this "
			       "hutchd knows up to %d: use a newer hutchd",
			       db->path, (long long)version,
			       db_schema_version());
	return 0;
}

int db_migrate(struct db *db, struct err *e)
{
	int64_t version = number(db, "PRAGMA user_version");
	char sql[128];

	for (int v = (int)version; v < db_schema_version(); v++) {
		snprintf(sql, sizeof(sql),
			 "PRAGMA user_version = %d;"
			 "PRAGMA application_id = %d",
			 v + 1, DB_APPLICATION_ID);
		if (db_exec(db, "BEGIN IMMEDIATE") || db_exec(db, steps[v]) ||
		    db_exec(db, sql) || db_exec(db, "COMMIT")) {
			err_set(e, ERR_INTERNAL, NULL,
				"the database %s cannot be brought from "
				"schema version %d to %d: %s; it stays as it "
				"was",
				db->path, v, v + 1, sqlite3_errmsg(db->h));
			if (!sqlite3_get_autocommit(db->h))
				db_exec(db, "ROLLBACK");
			return -1;
		}
		log_info("store: schema version %d", v + 1);
	}
	return 0;
}
