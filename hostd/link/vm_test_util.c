/* A link with a hostile VMM in its cache; see vm_test_util.h. */
#include "vm_test_util.h"
#include "../image/disk.h"
#include "../image/images.h"
#include "cache.h"
#include "fd.h"
#include "key.h"
#include "template_priv.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_progress(void *ctx, const char *text)
{
	(void)ctx;
	fail_msg("nothing is to be prepared: %s", text);
}

static void on_bound(void *ctx)
{
	struct seen *s = ctx;

	s->bound++;
	if (s->kill_on_bound)
		assert_int_equal(vm_kill(s->vm, 1, 0), 0);
	if (s->on_bind)
		s->on_bind(s);
}

static void on_started(void *ctx, uint64_t cmd)
{
	struct seen *s = ctx;

	s->started++;
	if (s->kill_on_start == 1)
		assert_int_equal(vm_kill(s->vm, cmd, 0), 0);
	if (s->kill_on_start == 2)
		vm_destroy(s->vm);
	if (s->on_start)
		s->on_start(s);
}

static void on_output(void *ctx, uint64_t cmd, int stream, uint64_t offset,
		      uint64_t total, const uint8_t *data, size_t len)
{
	struct seen *s = ctx;

	(void)data;
	assert_int_equal(cmd, 1);
	assert_int_equal(stream, 0);
	assert_int_equal(offset, 0);
	assert_int_equal(total, 3);
	assert_int_equal(len, 3);
	s->output++;
}

static void on_ended(void *ctx, uint64_t cmd, const struct vm_end *end)
{
	struct seen *s = ctx;

	s->ended++;
	s->how = end->how;
	snprintf(s->result, sizeof(s->result), "%.*s", (int)end->result_len,
		 end->result ? (const char *)end->result : "");
	snprintf(s->error, sizeof(s->error), "%.100s", end->error);
	vm_ack(s->vm, cmd);
	if (s->stop_on_end) {
		s->rc = vm_stop(s->vm);
		if (s->rc)
			vm_destroy(s->vm);
		return;
	}
	if (s->again_on_end) {
		struct vm_run run = {
			.code = "y", .code_len = 1, .timeout_ms = 100};

		assert_int_equal(vm_run(s->vm, 2, &run), 0);
		return;
	}
	if (s->destroy_on_end)
		vm_destroy(s->vm);
}

static void on_gone(void *ctx, enum end_reason why, const char *text)
{
	struct seen *s = ctx;

	s->gone++;
	s->why = why;
	snprintf(s->text, sizeof(s->text), "%s", text);
	loop_stop(loop);
}

static void on_stopped(void *ctx, const char *error)
{
	struct seen *s = ctx;

	s->stopped++;
	snprintf(s->error, sizeof(s->error), "%s", error ? error : "");
	vm_destroy(s->vm);
}

static void on_file_entry(void *ctx, uint64_t number,
			  const struct vm_file_entry *e)
{
	(void)ctx;
	(void)number;
	fail_msg("no list was asked for: %.*s", (int)e->name_len,
		 (const char *)e->name);
}

static void on_file_data(void *ctx, uint64_t number, const uint8_t *data,
			 size_t len)
{
	struct seen *s = ctx;

	assert_int_equal(number, 1);
	snprintf(s->result, sizeof(s->result), "%.*s", (int)len,
		 (const char *)data);
}

static void on_file_more(void *ctx, uint64_t number, size_t len)
{
	struct seen *s = ctx;

	assert_int_equal(number, 1);
	if (s->on_more)
		s->on_more(s, len);
	else
		fail_msg("%zu bytes are wanted that nobody has", len);
}

static void on_file_done(void *ctx, uint64_t number,
			 const struct vm_file_end *end)
{
	struct seen *s = ctx;

	assert_int_equal(number, 1);
	s->file_done++;
	s->file_how = end->how;
	if (s->stop_on_file)
		s->rc = vm_stop(s->vm);
	if (s->rc || !s->stop_on_file)
		vm_destroy(s->vm);
}

const struct vm_ops ops = {
	.progress = on_progress,
	.bound = on_bound,
	.started = on_started,
	.output = on_output,
	.ended = on_ended,
	.stopped = on_stopped,
	.file_entry = on_file_entry,
	.file_data = on_file_data,
	.file_more = on_file_more,
	.file_done = on_file_done,
	.gone = on_gone,
};

/* ---- a cache entry whose state file is the script -------------------------
 */

static void key_now(char hex[KEY_HEX_BYTES])
{
	struct key_inputs in = {
		.is_soft = lnk->is_soft,
		.cmdline = LINK_CMDLINE,
		.runner = "python",
		.shape = {.base = "lbb/python", .vcpus = 1, .ram_mib = 256},
	};
	struct bytes b = {0};
	int fd = open(vmm_path, O_RDONLY | O_CLOEXEC);

	hash_from_hex(SHA_ABC, in.root);
	hash_from_hex(SHA_ABC, in.kernel);
	hash_from_hex(SHA_ABC, in.init);
	assert_int_equal(
		file_hash(&lnk->hashes, FILE_HASH_PLAIN, fd, false, in.vmm), 0);
	close(fd);
	assert_int_equal(key_make(&in, &b, hex), 0);
	bytes_finish(&b);
}

const char *entry_touched;

void entry_put(const char *script)
{
	struct cache c = {lnk->cache_fd, &lnk->hashes};
	struct shape shape = {.base = "lbb/python", .vcpus = 1, .ram_mib = 256};
	struct cache_making m;
	struct template *t;
	struct err e = {0};
	char key[KEY_HEX_BYTES];

	/* Whole and open, a template is not looked at again: forget it. */
	assert_int_equal(template_get(lnk, &shape, &t), 0);
	t->state = TPL_IDLE;
	key_now(key);
	assert_int_equal(cache_making_begin(&c, key, &m, &e), 0);
	assert_int_equal(fd_write_all(m.state_fd, script, strlen(script)), 0);
	if (entry_touched)
		assert_int_equal(fd_write_all(m.touched_fd, entry_touched,
					      strlen(entry_touched)),
				 0);
	assert_int_equal(ftruncate(m.mem_fd, 1 << 20), 0);
	assert_int_equal(ftruncate(m.disk_fd, 1 << 20), 0);
	assert_int_equal(pwrite(m.disk_fd, "d", 1, 8192), 1);
	assert_int_equal(cache_making_commit(&c, key, &m, "", 1, &e), 0);
	cache_making_end(&c, key, &m);
}

int setup(void **state)
{
	(void)state;
	if (folder_make())
		return -1;
	file_put("vmlinux", "abc");
	if (link_open())
		return -1;
	lnk->times = (struct link_times){.bind_ms = 300,
					 .start_ms = 300,
					 .runner_ms = 900,
					 .overrun_ms = 200,
					 .hello_ms = 300,
					 .prepare_ms = 300,
					 .snapshot_ms = 300,
					 .lane_ms = 300,
					 .finish_ms = 200};
	lnk->has_lane = true;
	return 0;
}

unsigned fds_open(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void fds_say(void)
{
	char name[300], what[200];
	DIR *d = opendir("/proc/self/fd");
	struct dirent *de;

	while ((de = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), de->d_name, what,
				       sizeof(what) - 1);

		snprintf(name, sizeof(name), "%s", de->d_name);
		what[n < 0 ? 0 : n] = '\0';
		print_message("# %s %s\n", name, what);
	}
	closedir(d);
}

void fds_are(unsigned want)
{
	for (int i = 0; i < 500 && fds_open() != want; i++)
		loop_for(10);
	if (fds_open() != want)
		fds_say();
	assert_int_equal(fds_open(), want);
}

const struct vm_spec test_spec = {
	.base = "lbb/python",
	.limits = {1, 128, 256},
	.sandbox = "sbx_test",
};
const char *const *run_env;
size_t run_code_len = 1;

/* Plays `script` until the VM is gone. */
void play(const char *script, struct seen *s)
{
	static char code[4 << 20];
	struct vm_run run = {.code = memset(code, 'x', sizeof(code)),
			     .code_len = run_code_len,
			     .timeout_ms = 100,
			     .env = run_env};
	struct err e = {0};

	entry_put(script);
	assert_int_equal(vm_create(&s->vm, lnk, &test_spec, &ops, s, &e), 0);
	assert_int_equal(vm_run(s->vm, 1, &run), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s->gone, 1);
	/* Reaped, and its uid given back. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	for (size_t i = 0; i < sizeof(lnk->uid_used) / 8; i++)
		assert_int_equal(lnk->uid_used[i], 0);
}

/* ---- memory ----------------------------------------------------------- */

#define SCAN_BYTES (1u << 20)

/* How often a text, each byte of it masked, is in this writable memory. */
static unsigned range_count(int mem, uint64_t at, uint64_t end,
			    const uint8_t masked[SECRET_BYTES], uint8_t *buf)
{
	unsigned n = 0;

	for (; at < end; at += SCAN_BYTES - SECRET_BYTES) {
		ssize_t got = pread(mem, buf, SCAN_BYTES, (off_t)at);

		for (ssize_t i = 0; i + SECRET_BYTES <= got; i++) {
			size_t k = 0;

			while (k < SECRET_BYTES &&
			       (buf[i + (ssize_t)k] ^ MASK) == masked[k])
				k++;
			n += k == SECRET_BYTES;
		}
		explicit_bzero(buf, SCAN_BYTES);
	}
	return n;
}

unsigned memory_count(const uint8_t masked[SECRET_BYTES])
{
	int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	FILE *maps = fopen("/proc/self/maps", "re");
	uint8_t *buf = calloc(1, SCAN_BYTES);
	unsigned n = 0;
	char line[512];

	while (fgets(line, sizeof(line), maps)) {
		char *p; /* "begin-end rw-p ..." */
		unsigned long at = strtoul(line, &p, 16);
		unsigned long end = strtoul(p + 1, &p, 16);

		if (p[2] == 'w' && end - at < (256ul << 20))
			n += range_count(mem, at, end, masked, buf);
	}
	free(buf);
	fclose(maps);
	close(mem);
	return n;
}

void secret_put(char text[SECRET_TEXT_BYTES], size_t pad,
		uint8_t masked[SECRET_BYTES])
{
	memset(text, 'x', SECRET_TEXT_BYTES);
	memcpy(text, "B=", 2);
	for (size_t k = 0; k < SECRET_BYTES; k++) {
		masked[k] = (uint8_t)(rand() % 26 + 'a') ^ MASK;
		text[2 + pad + k] = (char)(masked[k] ^ MASK);
	}
	text[2 + pad + SECRET_BYTES] = 0;
	assert_true(memory_count(masked) > 0);
}
