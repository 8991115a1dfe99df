# hostd/link and hostd/image: VMs, the guest's channel, template snapshots.
# Included by hostd/part.mk; programs that use them link LINK_SRCS with
# LINK_LIBS, the loop and BASE_SRCS.

LINK_SRCS := $(addprefix hostd/link/,link.c spawn.c vmm.c vmm_log.c \
	vmm_args.c cgroup.c channel.c work.c gp_up.c gp_down.c session.c session_file.c \
	vm.c vm_command.c vm_file.c vm_start.c vm_stop.c vm_snapshot.c vm_from.c \
	snapshot.c snapshot_check.c space.c \
	vm_pool.c vm_lane.c vm_lane_give.c vm_bell.c shape.c \
	key.c cache.c cache_prune.c \
	check.c template.c renew.c maker.c first_run.c boot_log.c) \
	$(addprefix hostd/image/,images.c disk.c sparse.c filehash.c)
LINK_LIBS := -lcbor -ljansson -lcrypto
# Checking a result's JSON; LOOP_SRCS are the engine's.
LINK_JSON_SRCS := $(addprefix hostd/http/,json_raw.c json_read.c json_str.c \
	utf8.c)

$(eval $(call program,tests/link_smoke,hostd/link/link_smoke.c $(LINK_SRCS) \
	$(LINK_JSON_SRCS) $(LOOP_SRCS) $(BASE_SRCS),\
	$(LINK_LIBS) $(LOOP_LIBS)))

UNIT_TESTS += tests/hostd/session_test tests/hostd/gp_up_test
$(eval $(call program,tests/hostd/gp_up_test,hostd/link/gp_up_test.c \
	hostd/link/gp_up.c,-lcbor -lcmocka))
$(eval $(call program,tests/hostd/session_test,hostd/link/session_test.c \
	hostd/link/session_file.c hostd/link/gp_up.c $(LINK_JSON_SRCS) \
	$(BASE_SRCS),-lcbor -lcmocka))

UNIT_TESTS += tests/hostd/session_flood_test tests/hostd/session_file_test
$(eval $(call program,tests/hostd/session_file_test,\
	hostd/link/session_file_test.c hostd/link/session.c \
	hostd/link/session_file.c hostd/link/gp_up.c $(LINK_JSON_SRCS) \
	$(BASE_SRCS),-lcbor -lcmocka))
$(eval $(call program,tests/hostd/session_flood_test,\
	hostd/link/session_flood_test.c hostd/link/session.c \
	hostd/link/session_file.c hostd/link/gp_up.c $(LINK_JSON_SRCS) $(BASE_SRCS),-lcbor -lcmocka))

UNIT_TESTS += tests/hostd/image_test tests/hostd/cache_test
LINK_IMAGE_SRCS := $(addprefix hostd/image/,images.c disk.c sparse.c filehash.c)
$(eval $(call program,tests/hostd/image_test,hostd/image/image_test.c \
	$(LINK_IMAGE_SRCS) $(BASE_SRCS),-ljansson -lpthread -lcrypto -lcmocka))
$(eval $(call program,tests/hostd/cache_test,hostd/link/cache_test.c \
	hostd/link/cache.c hostd/link/cache_prune.c hostd/link/key.c hostd/clock.c $(LINK_IMAGE_SRCS) \
	$(BASE_SRCS),-ljansson -lcrypto -lcmocka))

$(eval $(call fuzz_target,guest_up,tests/fuzz/guest_up_fuzz.c \
	hostd/link/session.c hostd/link/session_file.c hostd/link/gp_up.c \
	$(LINK_JSON_SRCS) $(BASE_SRCS),-lcbor))

UNIT_TESTS += $(addprefix tests/hostd/,vm_test vm_pool_test vm_lane_test \
	vm_file_test vm_bell_test vm_stop_test vm_snapshot_test \
	vm_snapshot_check_test maker_test maker_die_test renew_test)
$(eval $(call program,tests/hostd/hostile_vmm,hostd/link/hostile_vmm.c \
	hostd/link/hostile_lane.c $(BASE_SRCS)))
$(foreach t,vm vm_pool vm_lane vm_file vm_bell vm_stop vm_snapshot vm_snapshot_check,$(eval $(call program,tests/hostd/$(t)_test,\
	hostd/link/$(t)_test.c hostd/link/vm_test_util.c \
	$(if $(filter vm_pool vm_lane vm_file vm_bell,$(t)),hostd/link/vm_pool_test_util.c) \
	$(if $(filter vm_snapshot%,$(t)),hostd/link/vm_snapshot_test_util.c) \
	hostd/link/link_test_util.c $(LINK_SRCS) \
	$(LINK_JSON_SRCS) $(LOOP_SRCS) $(BASE_SRCS),\
	$(LINK_LIBS) $(LOOP_LIBS) -lcmocka)))
$(eval $(call program,tests/hostd/maker_test,hostd/link/maker_test.c \
	hostd/link/link_test_util.c $(LINK_SRCS) $(LINK_JSON_SRCS) $(LOOP_SRCS) $(BASE_SRCS),\
	$(LINK_LIBS) $(LOOP_LIBS) -lcmocka -Wl$(,)--wrap=json_load_file))
$(eval $(call program,tests/hostd/renew_test,hostd/link/renew_test.c \
	hostd/link/link_test_util.c $(LINK_SRCS) $(LINK_JSON_SRCS) $(LOOP_SRCS) $(BASE_SRCS),\
	$(LINK_LIBS) $(LOOP_LIBS) -lcmocka))
$(eval $(call program,tests/hostd/maker_die_test,hostd/link/maker_die_test.c \
	hostd/link/link_test_util.c $(LINK_SRCS) $(LINK_JSON_SRCS) $(LOOP_SRCS) $(BASE_SRCS),\
	$(LINK_LIBS) $(LOOP_LIBS) -lcmocka))
$(addprefix $(B)/tests/hostd/,vm_test vm_pool_test vm_lane_test vm_file_test \
	vm_bell_test vm_stop_test vm_snapshot_test vm_snapshot_check_test maker_test \
	maker_die_test renew_test): | \
	$(B)/tests/hostd/hostile_vmm
