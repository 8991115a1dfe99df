# hutch, the command line.  It reads JSON with the daemon's reader, asks KVM
# with the VMM's probe and checks images and the state folder with the daemon's
# code, so that there is one of each.
HUTCH_JSON_SRCS := $(addprefix hostd/http/,json_raw.c json_read.c json_str.c \
	json_out.c utf8.c)
HUTCH_DOCTOR_SRCS := $(addprefix tools/hutch/,doctor.c doctor_kvm.c \
	doctor_kernel.c doctor_host.c doctor_files.c) \
	vmm/kvm.c vmm/kvm_probe.c vmm/thread.c hostd/config.c \
	hostd/config_pool.c hostd/http/listen.c $(addprefix hostd/image/,\
	images.c filehash.c sparse.c)
HUTCH_SRCS := $(addprefix tools/hutch/,main.c args.c http.c client.c \
	wording.c daemon.c source.c outcome.c output.c progress.c run.c \
	records.c export.c pages.c sandbox.c sandbox_command.c files.c file.c \
	template.c snapshot.c df.c verbs.c env.c grant.c key.c pool.c \
	prepare.c mcp.c serve.c) hostd/state_dir.c \
	$(HUTCH_DOCTOR_SRCS) $(HUTCH_JSON_SRCS) $(BASE_SRCS)
# The shared liburing of Debian 12 does not export io_uring_enable_rings.
HUTCH_LIBS := -l:liburing.a -lpthread -lcrypto -ljansson

$(eval $(call program,hutch,$(HUTCH_SRCS),$(HUTCH_LIBS)))
PROGRAMS += hutch

UNIT_TESTS += tests/tools/args_test tests/tools/http_test \
	tests/tools/outcome_test tests/tools/wording_test
$(eval $(call program,tests/tools/args_test,tools/hutch/args_test.c \
	$(BASE_SRCS),-lcmocka))
$(eval $(call program,tests/tools/http_test,tools/hutch/http_test.c \
	$(BASE_SRCS),-lpthread -lcmocka))
HUTCH_CLIENT_SRCS := $(addprefix tools/hutch/,client.c http.c daemon.c \
	wording.c) hostd/state_dir.c
$(eval $(call program,tests/tools/outcome_test,tools/hutch/outcome_test.c \
	$(HUTCH_CLIENT_SRCS) $(HUTCH_JSON_SRCS) $(BASE_SRCS),-lcmocka))
$(eval $(call program,tests/tools/wording_test,tools/hutch/wording_test.c \
	$(BASE_SRCS),-lcmocka))

# The load generator of `make bench`; bench.py's rows of requests use it.
BENCH_PROGRAMS := bench/load
$(eval $(call program,bench/load,tools/bench/load.c $(BASE_SRCS)))
