# The store: SQLite in one thread.  Included by hostd/part.mk.

STORE_SRCS := $(addprefix hostd/store/,record.c codec.c record_cbor.c db.c \
	migrate.c store.c key.c sandbox.c command.c run.c event.c recover.c \
	retention.c)
STORE_LIBS := -lsqlite3 -lcbor -lpthread
