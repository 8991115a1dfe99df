/* vm.c as link.c sees it. */
#ifndef HUTCHD_VM_PRIV_H
#define HUTCHD_VM_PRIV_H

struct link;

void vms_destroy(struct link *l); /* kill, wait, no callbacks */

#endif
