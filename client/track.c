/* Which way of tracking: for all, and for a region that does not allow it. */
#include "client/track.h"

#include <errno.h>

#include "client/client.h"

int track_start(void)
{
	return 0;
}

void track_stop(void)
{
	track_mprotect_stop();
}

unsigned track_kind(void)
{
	return CKPTFS_TRACKING_MPROTECT;
}

int track_attach(struct region *r)
{
	int error = track_mprotect.attach(r);

	if (error == 0)
		r->track = &track_mprotect;
	return error;
}

int track_collect(void)
{
	return 0;
}
