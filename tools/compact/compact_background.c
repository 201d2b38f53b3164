/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/compact/compact_background.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NICE 10 /* not the lowest priority, with which it would never finish on a busy node */

void compact_step_back(void)
{
	int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)!nice(NICE);
	/* Private, so that no unmount propagates here and fails with EBUSY. */
	if (unshare(flags) == 0)
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}
