/*
 * A hutch-vmm that misbehaves, for vm_test and its like.
 *
 * It takes the command line of the real one and plays the script that is the
 * first line of its kernel (cold boot) or of its state file (restore), up to a
 * colon; what follows is the script of its snapshot: silence,
 * death in the middle, broken frames, a lying end, to which a real guest is
 * hard to bring.
 */
#include "hostile_vmm.h"
#include "fd.h"
#include "frame.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int control = -1;
static int channel = -1, state = -1, boot_log = -1;
static char script[256];
static const char *copy = "brsoE"; /* the script of a snapshot of it */

static void options_read(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i++) {
		if (strcmp(argv[i], "--control") == 0)
			sscanf(argv[i + 1], "fd:%d", &control);
		if (strcmp(argv[i], "--channel") == 0)
			sscanf(argv[i + 1], "fd:%d", &channel);
		if (strcmp(argv[i], "--restore") == 0)
			sscanf(argv[i + 1], "state=fd:%d", &state);
		if (strcmp(argv[i], "--kernel") == 0)
			sscanf(argv[i + 1], "fd:%d", &state);
		if (strcmp(argv[i], "--log") == 0)
			sscanf(argv[i + 1], "fd:%d", &boot_log);
	}
}

void tell(uint32_t type, int status, const void *body, uint32_t len)
{
	static uint8_t buf[sizeof(struct vmm_msg) + VMM_BODY_BYTES_MAX];
	struct vmm_msg m = {.type = type, .status = status, .len = len};

	memcpy(buf, &m, sizeof(m));
	if (len)
		memcpy(buf + sizeof(m), body, len);
	fd_send(control, buf, sizeof(m) + len, NULL, 0);
}

static void tell_started(void)
{
	struct vmm_started st = {
		.version = VMM_CTL_VERSION,
		.is_soft = 1,
		.n_lanes = lanes_of(script),
	};

	tell(VMM_STARTED, 0, &st, sizeof(st));
}

/* Never reads what is answered. */
static void tell_many(uint32_t type, unsigned n)
{
	struct vmm_open open = {.port = 1};

	for (unsigned i = 0; i < n; i++)
		tell(type, 0, &open, sizeof(open));
}

static void tell_exit(enum vmm_why why, const char *text)
{
	struct vmm_exit x = {.why = why};

	snprintf(x.text, sizeof(x.text), "%s", text);
	tell(VMM_EXIT, 0, &x, sizeof(x));
	exit((int)why);
}

static void send_frame(uint16_t type, uint64_t cmd, const void *p, size_t len)
{
	struct bytes b = {0};

	if (frame_append(&b, type, cmd, p, len) ||
	    fd_write_all(channel, b.data, b.len))
		exit(99);
	bytes_finish(&b);
}

void wait_for_frame(uint16_t type)
{
	static struct frame_reader r;
	static bool is_made;
	struct frame f;

	if (!is_made)
		frame_reader_init(&r, GP_DOWN_BYTES_MAX);
	is_made = true;
	for (;;) {
		struct pollfd p = {.fd = channel, .events = POLLIN};
		uint8_t buf[4096];
		ssize_t n;

		while (frame_next(&r, &f) == 1)
			if (f.head.type == type)
				return;
		poll(&p, 1, -1);
		n = read(channel, buf, sizeof(buf));
		if (n == 0)
			exit(98);
		if (n > 0)
			frame_feed(&r, buf, (size_t)n);
	}
}

#define SEND(type, cmd, str) send_frame(type, cmd, str, sizeof(str) - 1)

/* What the inherited descriptors and limits are, as the run's result. */
static void tell_world(void)
{
	char line[40], end[60] = "\xa3\1\1\2\0\4\x58";
	int n_fds = 0;

	for (int fd = 0; fd < 1024; fd++)
		n_fds += fcntl(fd, F_GETFD) >= 0;
	snprintf(line, sizeof(line), "[%d,%d,%d]", n_fds, getsid(0) == getpid(),
		 getenv("PATH") != NULL);
	end[7] = (char)strlen(line);
	memcpy(end + 8, line, strlen(line));
	send_frame(GP_ENDED, 1, end, 8 + strlen(line));
}

/* Answers one request of the owner; a snapshot's state is a script, too. */
static void serve(int status)
{
	int fds[2] = {-1, -1};
	struct vmm_msg m = {0};
	size_t n_fds = 2;

	if (fd_recv(control, &m, sizeof(m), fds, &n_fds, 0) <= 0)
		exit(VMM_WHY_OWNER);
	if (m.type == VMM_SNAPSHOT && !status &&
	    (n_fds != 2 || fd_write_all(fds[0], copy, strlen(copy)) ||
	     fd_write_all(fds[0], "\n", 1) || ftruncate(fds[1], 1 << 20) ||
	     pwrite(fds[1], "m", 1, 4096) != 1))
		exit(96);
	if (m.type == VMM_TOUCHED && !status &&
	    (n_fds != 1 || fd_write_all(fds[0], "pages", 5)))
		exit(96);
	m.type |= VMM_REPLY;
	m.status = status;
	fd_send(control, &m, sizeof(m), NULL, 0);
}

static bool play_making(char c)
{
	switch (c) {
	case 'H':
		SEND(GP_HELLO, 0, "\xa3\1\1\2\x61k\3\x61i");
		return true;
	case 'P':
		wait_for_frame(GP_PREPARE);
		SEND(GP_PROGRESS, 0, "importing things");
		return true;
	case 'R':
		SEND(GP_READY, 0, "\xa1\1\xf5");
		return true;
	case '+': /* with a lane */
		SEND(GP_READY, 0, "\xa2\1\xf5\3\1");
		return true;
	case 'Q':
		SEND(GP_READY, 0, "\xa2\1\xf4\2\x67no disk");
		return true;
	case 'z':
		serve(0);
		return true;
	case 'Z':
		serve(-5);
		return true;
	case 'L':
		for (int i = 0; i < 500; i++)
			dprintf(boot_log, "[%4d] booting\n", i);
		dprintf(boot_log, "Kernel panic\x1b[0m\n");
		return true;
	default:
		return false;
	}
}

static bool play_control(char c)
{
	switch (c) {
	case 't': /* said before */
		tell_started();
		return true;
	case 'f':
		tell_many(VMM_OPEN, 50000);
		return true;
	case 'W': /* so that what was said is heard first */
		usleep(50000);
		return true;
	case 'F':
		tell_many(VMM_DEVICE, 3000);
		return true;
	case 'g':
		tell_exit(VMM_WHY_GUEST_SHUTDOWN, "triple fault\x1b[31m");
		return true;
	case 'S':
		tell_exit(VMM_WHY_SETUP,
			  "restore: the snapshot has another size");
		return true;
	default:
		return false;
	}
}

/* Before it stands still. */
static bool play_still(char c)
{
	switch (c) {
	case '?':
		wait_for_frame(GP_PING);
		SEND(GP_PONG, 0, "");
		return true;
	case '!':
		wait_for_frame(GP_HOLD);
		SEND(GP_PONG, 0, "");
		return true;
	case '>':
		wait_for_frame(GP_GO);
		return true;
	default:
		return false;
	}
}

/* A call on files. */
static bool play_file(char c)
{
	switch (c) {
	case '/':
		wait_for_frame(GP_FILE);
		return true;
	case '^':
		send_frame(GP_FILE_DATA, 1, "\0\0\0\0\0\0\0\0abc", 11);
		return true;
	case ',':
		SEND(GP_FILE_MORE, 1, "\xa0");
		return true;
	case ';':
		wait_for_frame(GP_FILE_PIECE);
		return true;
	case '.':
		SEND(GP_FILE_DONE, 1, "\xa2\1\1\3\3");
		return true;
	default:
		return false;
	}
}

static void play(char c)
{
	if (play_making(c) || play_control(c) || play_lane(c) ||
	    play_still(c) || play_file(c))
		return;
	switch (c) {
	case 'b':
		wait_for_frame(GP_BIND);
		SEND(GP_BOUND, 0, "\xa1\1\xf5");
		break;
	case '0': /* asked for by the lane */
		SEND(GP_BOUND, 0, "\xa1\1\xf5");
		break;
	case '7':
		wait_for_frame(GP_BIND);
		/* fall through */
	case 'B': /* before it was asked */
		SEND(GP_BOUND, 0,
		     "\xa2\1\xf4\2\x63"
		     "bad");
		break;
	case 's':
		SEND(GP_STARTED, 1, "\xa0");
		break;
	case 'r':
		wait_for_frame(GP_RUN);
		break;
	case 'k':
		wait_for_frame(GP_KILL);
		break;
	case 'o':
		send_frame(GP_OUTPUT, 1,
			   "\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
			   "abc",
			   27);
		break;
	case 'e':
		SEND(GP_ENDED, 1,
		     "\xa3\1\1\2\0\4\x41"
		     "6");
		break;
	case 'E': /* after 'o' */
		SEND(GP_ENDED, 1,
		     "\xa4\1\1\2\0\4\x41"
		     "6\6\3");
		break;
	case 'w':
		tell_world();
		break;
	case 'x': /* dies in the middle of a frame */
		if (write(channel, "\1\2\3", 3) != 3)
			exit(97);
		raise(SIGKILL);
		break;
	case 'p':
		SEND(GP_HELLO, 0, "\xa0");
		break;
	case 'c':
		shutdown(channel, SHUT_RDWR);
		close(channel);
		break;
	case 'l':
		for (int i = 0; i < 200; i++)
			dprintf(2, "line %d\n", i);
		break;
	case 'h':
		for (;;)
			pause();
	}
}

int main(int argc, char **argv)
{
	options_read(argc, argv);
	if (state < 0 || pread(state, script, sizeof(script) - 1, 0) < 0)
		return VMM_WHY_SETUP;
	script[strcspn(script, "\n")] = '\0';
	if (strchr(script, ':')) {
		copy = strchr(script, ':') + 1;
		script[copy - script - 1] = '\0';
	}
	tell_started();
	for (char *p = script; *p; p++)
		play(*p);
	/* The end of the control socket is the end of a VMM. */
	for (;;) {
		uint8_t buf[64];
		ssize_t n = recv(control, buf, sizeof(buf), 0);

		if (n <= 0)
			return VMM_WHY_OWNER;
	}
}
