# The store: SQLite in one thread.  Included by hostd/part.mk.

STORE_SRCS := $(addprefix hostd/store/,record.c codec.c record_cbor.c db.c \
	db_files.c migrate.c store.c page.c key.c sandbox.c command.c run.c \
	snapshot.c template.c file.c file_put.c environment.c grant.c budget.c \
	event.c export.c recover.c retention.c)
STORE_LIBS := -lsqlite3 -lcbor -lpthread

store_tests := record record_template db store store_age store_realm store_workflow \
	store_snapshot store_template store_file store_export store_files \
	store_fault store_crash
store_test_srcs := $(STORE_SRCS) hostd/store/store_test_util.c \
	hostd/store/test_vfs.c \
	hostd/loop.c hostd/loop_timer.c hostd/loop_work.c \
	hostd/clock.c $(BASE_SRCS)

UNIT_TESTS += $(store_tests:%=tests/hostd/%_test)
$(foreach t,$(store_tests),$(eval $(call program,tests/hostd/$(t)_test,\
	hostd/store/$(t)_test.c $(store_test_srcs),\
	$(STORE_LIBS) -luring -lcmocka)))

$(eval $(call fuzz_target,record,hostd/store/record_fuzz.c $(addprefix \
	hostd/store/,record.c codec.c record_cbor.c) api/base/bytes.c,-lcbor))
