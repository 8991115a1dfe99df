# hutchd: the daemon.  Each folder's part.mk names its sources and libraries.

-include hostd/engine/part.mk hostd/store/part.mk hostd/link/part.mk

JSON_SRCS := $(addprefix hostd/http/,json_raw.c json_read.c json_str.c \
	json_out.c utf8.c)
HTTP_SRCS := $(JSON_SRCS) $(addprefix hostd/http/,query.c route.c canon.c \
	auth.c realm.c grants.c wrong_keys.c listen.c conn.c server.c \
	request.c inner.c check.c reply.c reply_file.c range.c)
LBB_SRCS := $(addprefix hostd/surface/lbb/,routes.c decode.c work.c run.c \
	held.c naming.c update.c workflow.c grants.c encode.c sandboxes.c \
	snapshots.c files.c paths.c graph_files.c work_files.c commands.c \
	logs.c templates.c service.c errors_page.c)
MCP_SRCS := $(addprefix hostd/surface/mcp/,rpc.c methods.c tools.c args.c \
	call.c shape.c ask.c)
ADMIN_SRCS := $(addprefix hostd/surface/admin/,routes.c fields.c environments.c \
	graphs.c budgets.c keys.c status.c \
	pool.c df.c records.c prepare.c)
CONFIG_SRCS := hostd/config.c hostd/config_args.c hostd/config_pool.c

HOSTD_SRCS := $(sort hostd/main.c hostd/process.c hostd/state_dir.c \
	hostd/log_limit.c \
	$(CONFIG_SRCS) $(HTTP_SRCS) $(LBB_SRCS) $(MCP_SRCS) $(ADMIN_SRCS) $(ENGINE_SRCS) \
	$(STORE_SRCS) $(LINK_SRCS) $(BASE_SRCS))
HOSTD_LIBS := $(sort -lmicrohttpd -lcrypto $(ENGINE_LIBS) $(STORE_LIBS) \
	$(LINK_LIBS))

PROGRAMS += hutchd
$(eval $(call program,hutchd,$(HOSTD_SRCS),$(HOSTD_LIBS)))

# The same with a clock that tests move (clock.h).  Never installed.
HOSTD_MOVABLE_SRCS := $(subst clock.c,clock_movable.c,$(HOSTD_SRCS))
$(eval $(call program,hutchd-movable,$(HOSTD_MOVABLE_SRCS),$(HOSTD_LIBS)))
unit-tests: $(B)/hutchd-movable

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
http_test_srcs := hostd/http/server_test_util.c \
	hostd/http/server_test_files.c $(HTTP_SRCS) \
	$(subst clock.c,clock_movable.c,$(LOOP_SRCS)) $(BASE_SRCS)
UNIT_TESTS += tests/hostd/http_conn_test tests/hostd/http_answer_test \
	tests/hostd/http_inner_test tests/hostd/http_stream_test
$(foreach t,server conn answer inner stream,$(eval $(call program,tests/hostd/http_$(t)_test,\
	hostd/http/$(t)_test.c $(http_test_srcs),\
	-lmicrohttpd -lcrypto $(LOOP_LIBS) -lcmocka)))
$(eval $(call fuzz_target,http_body,tests/fuzz/http_body_fuzz.c \
	hostd/http/canon.c $(JSON_SRCS) $(BASE_SRCS),-lcrypto -ljansson))

work_files_srcs := hostd/surface/lbb/work_files.c hostd/engine/file_path.c \
	hostd/image/filehash.c hostd/image/sparse.c
UNIT_TESTS += $(addprefix tests/hostd/,run_test encode_test openapi_test)
$(eval $(call program,tests/hostd/run_test,hostd/surface/lbb/run_test.c \
	hostd/surface/lbb/decode.c hostd/surface/lbb/work.c \
	hostd/surface/lbb/workflow.c $(work_files_srcs) \
	hostd/http/canon.c hostd/http/route.c \
	$(JSON_SRCS) $(BASE_SRCS),-lcrypto -lcmocka \
	-Wl$(,)--wrap=calloc$(,)--wrap=realloc))
UNIT_TESTS += tests/hostd/held_test
$(eval $(call program,tests/hostd/held_test,hostd/surface/lbb/held_test.c \
	$(addprefix hostd/surface/lbb/,decode.c work.c naming.c workflow.c) \
	$(work_files_srcs) hostd/http/canon.c hostd/http/route.c \
	$(JSON_SRCS) $(BASE_SRCS),-lcrypto -lcmocka))
$(eval $(call program,tests/hostd/encode_test,\
	hostd/surface/lbb/encode_test.c hostd/surface/lbb/paths.c \
	hostd/engine/file_path.c hostd/http/query.c hostd/store/record.c \
	$(JSON_SRCS) \
	$(BASE_SRCS),-lcmocka))

UNIT_TESTS += tests/hostd/templates_test
$(eval $(call program,tests/hostd/templates_test,\
	hostd/surface/lbb/templates_test.c $(addprefix hostd/surface/lbb/,\
	decode.c work.c naming.c workflow.c encode.c sandboxes.c) hostd/store/record.c \
	hostd/surface/lbb/paths.c $(work_files_srcs) \
	$(addprefix hostd/http/,canon.c route.c query.c) \
	$(JSON_SRCS) $(BASE_SRCS),-lcrypto -lcmocka))

UNIT_TESTS += tests/hostd/lists_test
$(eval $(call program,tests/hostd/lists_test,\
	$(addprefix hostd/surface/lbb/,lists_test.c commands.c sandboxes.c \
	snapshots.c encode.c decode.c paths.c) hostd/engine/file_path.c \
	hostd/store/record.c $(addprefix hostd/http/,canon.c route.c query.c) \
	$(JSON_SRCS) $(BASE_SRCS),-lcrypto -lcmocka))

UNIT_TESTS += tests/hostd/files_test
$(eval $(call program,tests/hostd/files_test,hostd/surface/lbb/files_test.c \
	hostd/surface/lbb/paths.c hostd/engine/file_path.c hostd/http/query.c \
	$(JSON_SRCS) $(BASE_SRCS),-lcrypto -lcmocka))

UNIT_TESTS += tests/hostd/graph_files_test
$(eval $(call program,tests/hostd/graph_files_test,\
	hostd/surface/lbb/graph_files_test.c hostd/surface/lbb/paths.c \
	hostd/surface/lbb/encode.c hostd/store/record.c \
	hostd/engine/file_path.c hostd/image/filehash.c hostd/image/sparse.c \
	hostd/http/query.c $(JSON_SRCS) $(BASE_SRCS),-lcrypto -lcmocka))

UNIT_TESTS += tests/hostd/workflow_test
$(eval $(call program,tests/hostd/workflow_test,\
	hostd/surface/lbb/workflow_test.c hostd/surface/lbb/decode.c \
	hostd/http/canon.c hostd/http/route.c $(JSON_SRCS) $(BASE_SRCS),\
	-lcrypto -lcmocka))

UNIT_TESTS += tests/hostd/grants_test
$(eval $(call program,tests/hostd/grants_test,hostd/http/grants_test.c \
	hostd/http/grants.c hostd/http/route.c $(BASE_SRCS),-lcrypto -lcmocka))

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

# The tools of agents over a front that is made of variables.
MCP_TEST_SRCS := hostd/surface/mcp/mcp_test_util.c $(MCP_SRCS) \
	hostd/surface/lbb/decode.c hostd/http/query.c $(JSON_SRCS) $(BASE_SRCS)
UNIT_TESTS += $(addprefix tests/hostd/mcp_,rpc_test args_test result_test \
	ask_test)
$(foreach t,rpc args result ask,$(eval \
	$(call program,tests/hostd/mcp_$(t)_test,\
	hostd/surface/mcp/$(t)_test.c hostd/surface/mcp/mcp_test_want.c \
	$(MCP_TEST_SRCS),-lcrypto -lcmocka)))
$(eval $(call fuzz_target,mcp,tests/fuzz/mcp_fuzz.c $(MCP_TEST_SRCS),-lcrypto))
