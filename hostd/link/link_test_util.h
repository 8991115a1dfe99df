/*
 * For the tests of vm.c and maker.c: a folder with images of three bytes, and
 * a link on it whose VMM is hostile_vmm.
 */
#ifndef HUTCHD_LINK_TEST_UTIL_H
#define HUTCHD_LINK_TEST_UTIL_H

#include "../loop.h"
#include "link_priv.h"
#include <stdbool.h>

/* What every file of the folder holds, "abc". */
#define SHA_ABC                                                                \
	"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define IMAGES                                                                 \
	"{\"python\": {\"path\": \"root\", \"bytes\": 3, \"sha256\": "         \
	"\"" SHA_ABC "\"}}"

#define FOLDER_BYTES 64 /* short enough for the sockets in it */
extern char folder[FOLDER_BYTES], vmm_path[4096];
extern struct loop *loop;
extern struct link *lnk;

/* Of argv[0]'s folder; false, and said, when it is not built. */
bool vmm_find(const char *argv0);
/* With images.json, its image and init, but no kernel; 0 or -1. */
int folder_make(void);
void file_put(const char *name, const char *text);
/* vmm_find, and what makers need besides; false, and said. */
bool maker_can(const char *argv0);
/* Entries of the cache, whole or not, whose names begin so. */
unsigned cache_entries(const char *prefix);
/* Turns the loop meanwhile. */
void loop_for(int64_t ms);
/* Its deadlines are the caller's to set; 0 or -1. */
int link_open(void);
/* A cmocka teardown: link, loop and folder. */
int link_remove(void **state);

#endif
