/*
 * Fuzz: the state file of a snapshot.
 *
 * Input: a body, put into an envelope with a right sum (or, when the first
 * byte is odd, a whole file).  What is accepted must survive being written
 * and read again, and goes on to the checks of what it describes.
 */
#include "fuzz.h"
#include "memfile.h"
#include "sealed.c" /* its envelope and parser */
#include "state.c"  /* its table */
#include <sys/mman.h>

/* Addresses are only computed: there is no memory behind them. */
static void check_lanes(const struct vm_state *s)
{
	static uint8_t nothing;
	static struct lanes lanes;
	struct lane_saved back[LANES_MAX];
	struct mem mem = {.host = &nothing, .size = s->mem_bytes};

	if (s->n_lanes > LANES_MAX)
		abort();
	if (s->mem_bytes > (uint64_t)MEM_MIB_MAX << 20)
		return;
	lanes_init(&lanes, &mem);
	if (lanes_load(&lanes, s->lane, s->n_lanes) < 0)
		return;
	if (lanes_save(&lanes, back) != s->n_lanes)
		abort();
	for (uint32_t i = 0; i < s->n_lanes; i++)
		if (!mem_span(&mem, back[i].page, LANE_PAGE_BYTES))
			abort();
}

static void check_accepted(const struct vm_state *s)
{
	static struct vm_state again;
	struct ioapic apic = {0};
	struct mem mem = {.size = s->mem_bytes};
	struct err e = {0};
	int fd = memfd_create("state", MFD_CLOEXEC);

	if (fd < 0 || state_write(fd, s, &e) < 0 ||
	    state_read(fd, &again, &e) < 0 || again.n_vcpus != s->n_vcpus ||
	    again.n_vcpus > VCPUS_MAX || again.n_disks > DISKS_MAX ||
	    again.n_extents > STATE_EXTENTS_MAX)
		abort();
	(void)ioapic_load(&apic, &s->ioapic);
	check_lanes(s);
	/* No file of this size: refused before anything is mapped. */
	if (memfile_map(&mem, fd, s, false, &e) == 0 && s->n_extents)
		abort();
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct envelope v, back;
	static struct vm_state s;
	_cleanup_bytes_ struct bytes file = {0};
	struct err e = {0};
	int r;

	fuzz_begin();
	if (len < 1 || len > sizeof(v.body))
		return 0;
	if (data[0] & 1) {
		r = parse(data + 1, len - 1, &state_kind, &back, &s, &e);
	} else {
		memcpy(v.magic, state_kind.magic, sizeof(v.magic));
		v.version = STATE_VERSION;
		v.n_body = (uint32_t)len - 1;
		memcpy(v.body, data + 1, len - 1);
		sum_of(v.body, v.n_body, v.sum);
		if (codec_encode(&file, envelope_table, &v) < 0)
			abort();
		r = parse(file.data, file.len, &state_kind, &back, &s, &e);
	}
	/* Past the envelope: the body's fields were read. */
	if (r == 0 || strstr(e.text, "field"))
		fuzz_reach();
	if (r == 0)
		check_accepted(&s);
	return 0;
}
