/*
 * K16: more connections than the server may have, and no descriptors left, in
 * a real process with a low limit.  Who asks is answered, who only waits makes
 * room, nobody spins, and all is well again after.
 */
#include "log.h"
#include "server_test_util.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVER_FILES 128
#define PORT_MAX     (SERVER_FILES / 2)
#define FLOOD	     1000

static const char ask[] = "GET /stream HTTP/1.1\r\n" HOST "\r\n";
static const char ask_once[] = "GET /stream HTTP/1.1\r\n" CLOSE;
static int fds[FLOOD];

static int start_low(void **state)
{
	server_files = SERVER_FILES;
	return start(state);
}

/* One request on a connection that stays. */
static void ask_again(int fd)
{
	char buf[4096];
	size_t n = 0;

	assert_int_equal(send(fd, ask, strlen(ask), MSG_NOSIGNAL), strlen(ask));
	do {
		ssize_t got = read(fd, buf + n, sizeof(buf) - 1 - n);

		if (got <= 0)
			fail_msg("the connection ended after %zu bytes", n);
		n += (size_t)got;
		buf[n] = 0;
	} while (!strstr(buf, "tick\n\r\n0\r\n\r\n"));
	assert_int_equal(strncmp(buf, "HTTP/1.1 200", 12), 0);
}

/* Processor time that the server used, in ms. */
static long cpu_ms(void)
{
	unsigned long user, sys;
	char path[64], line[1024];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)server_pid);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	assert_int_equal(sscanf(strrchr(line, ')'),
				") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u "
				"%lu %lu",
				&user, &sys),
			 2);
	return (long)(user + sys) * 1000 / sysconf(_SC_CLK_TCK);
}

static void rests(const char *while_what)
{
	long before = cpu_ms();

	sleep(1);
	if (cpu_ms() - before > 300)
		fail_msg("%ld ms of a second while %s", cpu_ms() - before,
			 while_what);
}

static unsigned server_fds(void)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)server_pid);
	d = opendir(path);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void close_all(void)
{
	for (int i = 0; i < FLOOD; i++)
		close(fds[i]);
}

static void test_k16_flood(void **state)
{
	unsigned before = server_fds();
	int old = dial();
	int admin;

	(void)state;
	ask_again(old);
	for (int i = 0; i < FLOOD; i++)
		fds[i] = dial();
	assert_true(server_fds() < SERVER_FILES);
	rests("a thousand clients say nothing");
	/* One that asked before, a new one, one of the crowd, the admin. */
	ask_again(old);
	want(talk(ask_once), "200", "tick");
	ask_again(fds[FLOOD - 1]);
	admin = dial_admin();
	dprintf(admin, "GET /admin HTTP/1.1\r\n" CLOSE);
	want(read_answer(admin), "200", NULL);
	ask_again(old);
	close_all();
	want(talk(ask_once), "200", "tick");
	close(old);
	usleep(300000);
	assert_true(server_fds() <= before + 2);
}

/* Nobody can be sent away: the new one is told when to come again. */
static void test_k16_all_work(void **state)
{
	static const char later[] = "GET /later?long=1 HTTP/1.1\r\n" CLOSE;
	int refused = 0;

	(void)state;
	for (int i = 0; i < PORT_MAX; i++) {
		fds[i] = dial();
		assert_int_equal(write(fds[i], later, strlen(later)),
				 strlen(later));
	}
	usleep(300000);
	for (int i = 0; i < 20; i++) {
		want(talk(ask_once), "503", "Retry-After: 1");
		refused += strstr(answer, "\"service_unavailable\"") != NULL;
		assert_non_null(strstr(answer, "\"retryable\":true"));
	}
	assert_int_equal(refused, 20);
	rests("all connections work");
	clock_set(1100000); /* their time is over */
	for (int i = 0; i < PORT_MAX; i++)
		want(read_answer(fds[i]), "200", "later");
	want(talk(ask_once), "200", "tick");
}

/* Others use up the descriptors, the spare one too: accepting rests. */
static void test_k16_no_descriptor(void **state)
{
	const struct rlimit none = {4, 4096}, again = {SERVER_FILES, 4096};
	int old = dial(), waiting;
	struct pollfd p;

	(void)state;
	ask_again(old);
	assert_int_equal(prlimit(server_pid, RLIMIT_NOFILE, &none, NULL), 0);
	waiting = dial();
	dprintf(waiting, "%s", ask_once);
	rests("no descriptor is left");
	p = (struct pollfd){.fd = waiting, .events = POLLIN};
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(prlimit(server_pid, RLIMIT_NOFILE, &again, NULL), 0);
	want(read_answer(waiting), "200", "tick");
	close(old);
	want(talk(ask_once), "200", "tick");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_k16_flood),
		cmocka_unit_test(test_k16_all_work),
		cmocka_unit_test(test_k16_no_descriptor),
	};
	const struct rlimit files = {4096, 4096};
	int rc;

	log_init("conn_test");
	setrlimit(RLIMIT_NOFILE, &files);
	if (test_files_make())
		return 1;
	rc = cmocka_run_group_tests_name("conn", tests, start_low, stop);
	test_files_remove();
	return rc;
}
