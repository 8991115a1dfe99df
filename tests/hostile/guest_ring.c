/* Whether the tests can run with io_uring; see guest.h. */
#include "guest.h"

bool ring_is_here(void)
{
	struct io *io;
	bool is;

	if (io_create(&io, &(struct io_config){.use_ring = true}) < 0)
		return false;
	is = io_has_ring(io);
	io_destroy(io);
	if (!is)
		print_message("# skip io_uring: the kernel refuses it\n");
	return is;
}
