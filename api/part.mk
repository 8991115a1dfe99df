# Unit tests of api/base (each includes the .c that it tests), and the fuzz
# target of the frame reader.
base_tests := err log fd bytes frame list fault
UNIT_TESTS += $(base_tests:%=tests/base/%_test)

$(foreach t,$(base_tests),$(eval $(call program,tests/base/$(t)_test,\
	api/base/$(t)_test.c $(filter-out api/base/$(t).c,$(BASE_SRCS)),\
	-lcmocka)))
$(eval $(call fuzz_target,frame,tests/fuzz/frame_fuzz.c api/base/frame.c \
	api/base/bytes.c))
