/*
 * main() of a fuzz target without libFuzzer: runs every file of the folders
 * and files given, each as one input.  Part of `make check`.
 */
#include "fuzz.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_BYTES_MAX (4u << 20)

static int replay_file(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *data;
	size_t len;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st)) {
		fprintf(stderr, "replay: %s: %s\n", name, strerror(errno));
		exit(1);
	}
	if (!S_ISREG(st.st_mode) || st.st_size > INPUT_BYTES_MAX) {
		close(fd);
		return 0;
	}
	/* Exactly as long as the input, so that ASan sees one byte too far. */
	len = (size_t)st.st_size;
	data = malloc(len ? len : 1);
	n = data ? read(fd, data, len) : -1;
	if (n < 0 || (size_t)n != len) {
		fprintf(stderr, "replay: %s: cannot read\n", name);
		exit(1);
	}
	close(fd);
	LLVMFuzzerTestOneInput(data, len);
	free(data);
	return 1;
}

static int replay_path(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int n = 0;

	if (!d)
		return replay_file(AT_FDCWD, path);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			n += replay_file(dirfd(d), e->d_name);
	closedir(d);
	return n;
}

int main(int argc, char **argv)
{
	int n = 0;

	for (int i = 1; i < argc; i++)
		n += replay_path(argv[i]);
	if (!n) {
		fprintf(stderr, "replay: no input files\n");
		return 1;
	}
	printf("replayed %d inputs\n", n);
	return 0;
}
