/* Unit tests of the configuration: file, flags, example. */
#include "config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

#define EXAMPLE "hostd/hutchd.conf.example"

static void write_file(char *path, const char *text)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int read_text(struct config *c, const char *text, struct err *e)
{
	char path[] = "/tmp/config_test.XXXXXX";
	int rc;

	assert_int_equal(config_defaults(c, "/opt/hutch", e), 0);
	write_file(path, text);
	rc = config_read(c, path, false, e);
	unlink(path);
	return rc;
}

static void test_file(void **state)
{
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(read_text(&c,
				   "# comment\n\n"
				   "  listen =  0.0.0.0:80  \r\n"
				   "graph_places=7 # of ten\n"
				   "images_dir = /a#b\t# kept: no space\n"
				   "public_url = # none\n"
				   "confine = no\n"
				   "node = ab12\n"
				   "log_level = debug",
				   &e),
			 0);
	assert_string_equal(c.listen, "0.0.0.0:80");
	assert_int_equal(c.graph_places, 7);
	assert_string_equal(c.images_dir, "/a#b");
	assert_string_equal(c.public_url, "");
	assert_int_equal(c.environment_places, 10);
	assert_false(c.is_confined);
	assert_true(c.is_metrics_open);
	assert_string_equal(c.node, "ab12");
	assert_string_equal(c.state_dir, "/opt/hutch/state");
}

static void test_refuses(void **state)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{"x = 1", "line 1: unknown key \"x\""},
		{"\n\nlisten", "line 3: expected key = value"},
		{"graph_places = 0", "from 1 to 100000"},
		{"graph_places = 100001", "from 1 to 100000"},
		{"graph_places = -1", "\"-1\""},
		{"graph_places = 1.5", "whole number"},
		{"graph_places = 99999999999999999999", "whole number"},
		{"graph_places =", "whole number"},
		{"confine = true", "must be yes or no"},
		{"node = ABCD", "4 characters"},
		{"node = abc", "4 characters"},
		{"log_level = loud", "error warn info debug"},
		{"log_level = error warn", "error warn info debug"},
		{"pool_max = 65", "from 0 to 64"},
		{"pool_python = x", "pool_python: \"x\" is neither"},
		{"pool_python = 65", "0 to 64 VMs"},
		{"pool_python = 1 5x1024:1", "\"5x1024:1\""},
		{"pool_node = 1x127:1", "128 to 8192 MiB of memory"},
		{"pool_node = 1x1024x255:1", "256 to 10240 MiB of disk"},
		{"pool_shell = 1x1024:", "\"1x1024:\""},
		{"pool_shell = 1024:1", "\"1024:1\""},
		{"pool_shell = 1x1024x4096x1:1", "neither"},
		{"pool_shell = 99999999999:1", "neither"},
		{"graph_places = 5\n\ngraph_places = 5",
		 "line 3: graph_places was given in line 1 already"},
		{"= 1", "unknown key \"\""},
		{"\nlisten = localhost:80",
		 "line 2: listen = \"localhost:80\""},
		{"listen =", "line 1: listen = \"\": must be ADDRESS:PORT"},
		{"listen = 127.0.0.1", "must be ADDRESS:PORT"},
		{"listen = 127.0.0.1:65536", "must be ADDRESS:PORT"},
		{"listen = 127.0.0.1: 80", "must be ADDRESS:PORT"},
		{"listen = [::1:80", "must be ADDRESS:PORT"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct config c;
		struct err e;

		if (read_text(&c, cases[i].text, &e) != -1)
			fail_msg("accepted: %s", cases[i].text);
		if (!strstr(e.text, cases[i].part))
			fail_msg("%s: message \"%s\"", cases[i].text, e.text);
	}
}

struct pools {
	struct config_pool list[4];
	unsigned n;
};

static void on_pool(void *ctx, const struct config_pool *p)
{
	struct pools *all = ctx;

	assert_true(all->n < 4);
	all->list[all->n++] = *p;
}

static void test_pool(void **state)
{
	struct pools all = {0};
	struct err e;

	(void)state;
	assert_int_equal(config_pool_each(" 2 1x512:1\t4x8192x10240:64 0 ",
					  on_pool, &all, &e),
			 0);
	assert_int_equal(all.n, 3); /* what is 0 is not told */
	assert_memory_equal(&all.list[0],
			    (&(struct config_pool){1, 1024, 4096, 2}),
			    sizeof(all.list[0]));
	assert_memory_equal(&all.list[1],
			    (&(struct config_pool){1, 512, 4096, 1}),
			    sizeof(all.list[0]));
	assert_memory_equal(&all.list[2],
			    (&(struct config_pool){4, 8192, 10240, 64}),
			    sizeof(all.list[0]));
	assert_int_equal(config_pool_each("", on_pool, &all, &e), 0);
	assert_int_equal(all.n, 3);
}

static void test_missing(void **state)
{
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(config_defaults(&c, "/x", &e), 0);
	assert_int_equal(config_read(&c, "/nonexistent/f", true, &e), 0);
	assert_int_equal(config_read(&c, "/nonexistent/f", false, &e), -1);
}

static int args(struct config *c, const char **what, struct err *e, ...)
{
	char *argv[16] = {strdup("hutchd")};
	int argc = 1, rc;
	const char *arg;
	va_list ap;

	va_start(ap, e);
	while ((arg = va_arg(ap, const char *)))
		argv[argc++] = strdup(arg);
	va_end(ap);
	assert_int_equal(config_defaults(c, "/x", e), 0);
	rc = config_args(c, argc, argv, what, e);
	while (argc)
		free(argv[--argc]);
	return rc;
}

static void test_args(void **state)
{
	char path[] = "/tmp/config_test.XXXXXX";
	const char *what = NULL;
	struct config c;
	struct err e;

	(void)state;
	write_file(path, "listen = 127.0.0.1:1\nstate_dir = /from/file\n");
	assert_int_equal(args(&c, &what, &e, "--listen", "127.0.0.1:0",
			      "--config", path, "--foreground",
			      "--set=graph_places=9", "--cache=/c", NULL),
			 0);
	assert_string_equal(c.listen, "127.0.0.1:0");
	assert_string_equal(c.state_dir, "/from/file");
	assert_string_equal(c.cache_dir, "/c");
	assert_int_equal(c.graph_places, 9);
	/* Under the file; over what is built in; under --state. */
	assert_int_equal(args(&c, &what, &e, "--default-state", "/own",
			      "--config", path, NULL),
			 0);
	assert_string_equal(c.state_dir, "/from/file");
	assert_int_equal(args(&c, &what, &e, "--config", path,
			      "--default-state=/own", "--state", "/flag", NULL),
			 0);
	assert_string_equal(c.state_dir, "/flag");
	assert_int_equal(args(&c, &what, &e, "--config", "/dev/null",
			      "--default-state", "/own", NULL),
			 0);
	assert_string_equal(c.state_dir, "/own");
	unlink(path);
	assert_int_equal(args(&c, &what, &e, "--default-state", NULL), -1);
	assert_int_equal(args(&c, &what, &e, "--help", NULL), 1);
	assert_string_equal(what, "--help");
	assert_int_equal(args(&c, &what, &e, "--bogus", NULL), -1);
	assert_non_null(strstr(e.text, "--bogus"));
	assert_int_equal(args(&c, &what, &e, "--state", NULL), -1);
	assert_int_equal(args(&c, &what, &e, "--set", "x", NULL), -1);
	assert_int_equal(args(&c, &what, &e, "--set", "x=1", NULL), -1);
	assert_int_equal(args(&c, &what, &e, "positional", NULL), -1);
}

/* Every key is in the example, commented out, and the whole file is valid
 * with the comment marks taken away. */
static void test_example(void **state)
{
	FILE *f = fopen(EXAMPLE, "re");
	char line[512], text[16384] = "";
	struct config c;
	const char *key;
	struct err e;

	(void)state;
	if (!f)
		fail_msg("%s: run the test in the repository's folder",
			 EXAMPLE);
	while (fgets(line, sizeof(line), f))
		if (line[0] == '#' && line[1] != ' ' && line[1] != '\n')
			strncat(text, line + 1,
				sizeof(text) - strlen(text) - 1);
	fclose(f);
	if (read_text(&c, text, &e))
		fail_msg("%s: %s", EXAMPLE, e.text);
	for (unsigned i = 0; (key = config_key(i)); i++) {
		snprintf(line, sizeof(line), "%s =", key);
		if (!strstr(text, line))
			fail_msg("%s does not name %s", EXAMPLE, key);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),	cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_missing), cmocka_unit_test(test_args),
		cmocka_unit_test(test_example), cmocka_unit_test(test_pool),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
