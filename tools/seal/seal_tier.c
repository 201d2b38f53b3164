/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/seal/seal_tier.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/progress.h"

#define STEP_NS 50000000

static int get(int fd, uint64_t ino, uint64_t check, struct ckptfs_tier *ret)
{
	*ret = (struct ckptfs_tier){ .size = sizeof(*ret), .version = CKPTFS_IOC_VERSION, .inode = ino, .check = check };
	return ioctl(fd, CKPTFS_IOC_TIER, ret) < 0 ? -errno : 0;
}

int seal_tier_get(int fd, uint64_t ino, struct ckptfs_tier *ret)
{
	return get(fd, ino, 0, ret);
}

static bool is_there(const struct seal_tier_wait *how, const struct ckptfs_tier *t)
{
	return how->ino != 0 ? (t->facts & (CKPTFS_TIER_HAS | CKPTFS_TIER_CHECKING)) == CKPTFS_TIER_HAS :
			       t->facts & CKPTFS_TIER_KNOWN && t->in_tier == t->sealed;
}

static void show(struct progress *p, const struct seal_tier_wait *how, const struct ckptfs_tier *t, uint64_t most)
{
	if (how->ino != 0)
		progress_show(p, "Flushing:", t->flushed_bytes, t->bytes, true);
	else
		progress_show(p, "Flushing:", most - MIN(most, t->waiting_bytes), most, true);
}

int seal_tier_wait(int fd, const struct seal_tier_wait *how, struct ckptfs_tier *ret)
{
	uint64_t until = how->timeout_ns > 0 ? monotonic_ns() + how->timeout_ns : UINT64_MAX, most = 0;
	uint64_t check = CKPTFS_TIER_CHECK;
	struct progress progress;
	bool said = false;
	int r;

	progress_init(&progress);
	while ((r = get(fd, how->ino, check, ret)) == 0 && !is_there(how, ret)) {
		check = ret->check;
		most = MAX(most, ret->waiting_bytes);
		if (how->ino != 0 && ret->facts & CKPTFS_TIER_REMOVED)
			r = -ESTALE;
		else if (how->ino != 0 && ret->directory_error == EFBIG)
			r = -EFBIG;
		else if (ret->state == CKPTFS_TIER_STOPPED)
			r = -ESHUTDOWN;
		else if (monotonic_ns() >= until)
			r = -ETIMEDOUT;
		if (r < 0)
			break;
		if (!how->quiet)
			show(&progress, how, ret, most);
		if (!how->quiet && ret->reason[0] && !said) {
			progress_clear(&progress);
			text_printf(stderr, "%s: %s: waiting for the tier %s: %s\n", how->tool, how->path, ret->where,
				    ret->reason);
			said = true;
		}
		nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
	}
	progress_clear(&progress);
	return r;
}
