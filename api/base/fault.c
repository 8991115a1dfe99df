/* Named moments at which a process dies; see fault.h. */
#include "fault.h"
#include "log.h"
#include <signal.h>
#include <string.h>

#define HALT ":halt"

static const struct {
	enum fault_side side;
	const char *name;
} faults[] = {
#define F(side, id, name) [FAULT_##id] = {FAULT_OF_##side, name},
	FAULT_TABLE(F)
#undef F
};
#define N_FAULTS (sizeof(faults) / sizeof(faults[0]))

enum fault fault_armed;
static bool is_halt;

int fault_arm(enum fault_side side, const char *text, struct err *e)
{
	size_t len = strlen(text);
	bool halts = len > strlen(HALT) &&
		     strcmp(text + len - strlen(HALT), HALT) == 0;

	if (halts)
		len -= strlen(HALT);
	for (size_t i = 1; i < N_FAULTS; i++) {
		if (strlen(faults[i].name) != len ||
		    memcmp(faults[i].name, text, len) != 0)
			continue;
		if (faults[i].side != side)
			return 0;
		is_halt = halts;
		fault_armed = (enum fault)i;
		return 1;
	}
	return err_set(e, ERR_INVALID_REQUEST, NULL,
		       "there is no moment \"%.64s\" to die at; "
		       "api/base/fault.h lists them",
		       text);
}

/* Two threads may come by at once: one of them stops both. */
void fault_hit(void)
{
	enum fault f =
		__atomic_exchange_n(&fault_armed, FAULT_NONE, __ATOMIC_SEQ_CST);

	if (f == FAULT_NONE)
		return;
	log_warn("%s at=%s", is_halt ? "halts" : "dies", faults[f].name);
	raise(is_halt ? SIGSTOP : SIGKILL);
}
