# hutchd: the daemon.  Each folder's part.mk names its sources and libraries.

-include hostd/engine/part.mk hostd/store/part.mk hostd/link/part.mk

JSON_SRCS := $(addprefix hostd/http/,json_raw.c json_read.c json_str.c \
	json_out.c utf8.c)
HTTP_SRCS := $(JSON_SRCS) $(addprefix hostd/http/,query.c route.c canon.c \
	auth.c wrong_keys.c listen.c conn.c server.c request.c check.c reply.c)
LBB_SRCS := $(addprefix hostd/surface/lbb/,routes.c decode.c work.c run.c \
	held.c encode.c sandboxes.c snapshots.c files.c commands.c logs.c templates.c service.c errors_page.c)
ADMIN_SRCS := $(addprefix hostd/surface/admin/,routes.c keys.c status.c \
	pool.c df.c records.c prepare.c)
CONFIG_SRCS := hostd/config.c hostd/config_args.c hostd/config_pool.c

HOSTD_SRCS := $(sort hostd/main.c hostd/process.c hostd/state_dir.c \
	hostd/log_limit.c \
	$(CONFIG_SRCS) $(HTTP_SRCS) $(LBB_SRCS) $(ADMIN_SRCS) $(ENGINE_SRCS) \
	$(STORE_SRCS) $(LINK_SRCS) $(BASE_SRCS))
HOSTD_LIBS := $(sort -lmicrohttpd -lcrypto $(ENGINE_LIBS) $(STORE_LIBS) \
	$(LINK_LIBS))

PROGRAMS += hutchd
$(eval $(call program,hutchd,$(HOSTD_SRCS),$(HOSTD_LIBS)))

# ---- unit tests and fuzz targets ----------------------------------------

UNIT_TESTS += $(addprefix tests/hostd/,json_raw_test canon_test config_test \
	http_server_test)
$(eval $(call program,tests/hostd/json_raw_test,hostd/http/json_raw_test.c \
	$(JSON_SRCS) $(BASE_SRCS),-lcmocka))
$(eval $(call program,tests/hostd/canon_test,hostd/http/canon_test.c \
	hostd/http/canon.c hostd/http/query.c hostd/http/route.c \
	$(JSON_SRCS) $(BASE_SRCS),-lcrypto -lcmocka))
$(eval $(call program,tests/hostd/config_test,hostd/config_test.c \
	hostd/http/listen.c $(CONFIG_SRCS) $(BASE_SRCS),-lcmocka))
http_test_srcs := hostd/http/server_test_util.c $(HTTP_SRCS) \
	$(subst clock.c,clock_movable.c,$(LOOP_SRCS)) $(BASE_SRCS)
UNIT_TESTS += tests/hostd/http_conn_test tests/hostd/http_answer_test
$(foreach t,server conn answer,$(eval $(call program,tests/hostd/http_$(t)_test,\
	hostd/http/$(t)_test.c $(http_test_srcs),\
	-lmicrohttpd -lcrypto $(LOOP_LIBS) -lcmocka)))
$(eval $(call fuzz_target,http_body,tests/fuzz/http_body_fuzz.c \
	hostd/http/canon.c $(JSON_SRCS) $(BASE_SRCS),-lcrypto -ljansson))

UNIT_TESTS += $(addprefix tests/hostd/,run_test encode_test openapi_test)
$(eval $(call program,tests/hostd/run_test,hostd/surface/lbb/run_test.c \
	hostd/surface/lbb/decode.c hostd/surface/lbb/work.c \
	hostd/http/canon.c hostd/http/route.c \
	$(JSON_SRCS) $(BASE_SRCS),-lcrypto -lcmocka \
	-Wl$(,)--wrap=calloc$(,)--wrap=realloc))
UNIT_TESTS += tests/hostd/held_test
$(eval $(call program,tests/hostd/held_test,hostd/surface/lbb/held_test.c \
	hostd/surface/lbb/decode.c hostd/surface/lbb/work.c \
	hostd/http/canon.c hostd/http/route.c \
	$(JSON_SRCS) $(BASE_SRCS),-lcrypto -lcmocka))
$(eval $(call program,tests/hostd/encode_test,\
	hostd/surface/lbb/encode_test.c hostd/store/record.c $(JSON_SRCS) \
	$(BASE_SRCS),-lcmocka))

UNIT_TESTS += tests/hostd/files_test
$(eval $(call program,tests/hostd/files_test,hostd/surface/lbb/files_test.c \
	hostd/engine/file_path.c hostd/http/query.c $(JSON_SRCS) \
	$(BASE_SRCS),-lcrypto -lcmocka))

UNIT_TESTS += tests/hostd/log_limit_test tests/hostd/wrong_keys_test
$(eval $(call program,tests/hostd/wrong_keys_test,\
	hostd/http/wrong_keys_test.c,-lcrypto -lcmocka))
$(eval $(call program,tests/hostd/log_limit_test,hostd/log_limit_test.c \
	$(BASE_SRCS),-lpthread -lcmocka))

UNIT_TESTS += tests/hostd/state_dir_test
$(eval $(call program,tests/hostd/state_dir_test,hostd/state_dir_test.c \
	hostd/state_dir.c $(BASE_SRCS),-lcmocka))

UNIT_TESTS += tests/hostd/process_test
$(eval $(call program,tests/hostd/process_test,hostd/process_test.c \
	hostd/process.c hostd/link/spawn.c $(BASE_SRCS),-lcmocka))

# The route table of the program just built against api/openapi.
$(B)/tests/hostd/openapi_test: api/openapi/check.py api/openapi/lbb.yaml \
		$(B)/hutchd
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec python3 api/openapi/check.py %s/hutchd\n' \
		$(B) > $@
	@chmod +x $@
