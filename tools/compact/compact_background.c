#include "tools/compact/compact_background.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NICE 10 /* not the lowest: on a node that is always busy it would never come to an end */

void compact_step_back(void)
{
	int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)!nice(NICE);
	/* Private: else an unmount would have to go through here, too, and find it busy. */
	if (unshare(flags) == 0)
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}
