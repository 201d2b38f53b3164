/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice of the tracking mechanism: the preferred one, and mprotect(2) for regions that it cannot track. */
#include "client/lib/track.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "client/lib/client.h"
#include "client/lib/track_uffd.h"

static const struct track *preferred = &track_mprotect;

int track_start(void)
{
	bool async = client.options.mode == CKPTFS_MODE_SYNC; /* no write happens while a checkpoint is written */
	const char *why = "";
	int r;

	preferred = &track_mprotect;
	if (client.options.tracking == CKPTFS_TRACKING_MPROTECT)
		return 0;
	r = track_uffd_start(async, &why);
	if (r < 0 && async && client.options.tracking == CKPTFS_TRACKING_USERFAULTFD) {
		log_notice("checkpoints: no asynchronous userfaultfd, each write is handled: %s", why);
		async = false;
		r = track_uffd_start(async, &why);
	}
	if (r == 0) {
		preferred = async ? &track_uffd_async : &track_uffd;
		return 0;
	}
	if (client.options.tracking == CKPTFS_TRACKING_USERFAULTFD)
		return log_errno(-EOPNOTSUPP, "checkpoints: no userfaultfd: %s", why);
	log_notice("checkpoints: tracking by mprotect(2): %s", why);
	return 0;
}

void track_stop(void)
{
	track_uffd_stop();
	track_mprotect_stop();
}

void track_forget_parent(void)
{
	track_uffd_forget();
	track_mprotect_forget();
	preferred = &track_mprotect;
}

unsigned track_kind(void)
{
	return preferred == &track_mprotect ? CKPTFS_TRACKING_MPROTECT : CKPTFS_TRACKING_USERFAULTFD;
}

/* userfaultfd cannot track private file mappings, which include the data segment of a program. */
int track_attach(struct region *r)
{
	int error = preferred->attach(r);

	r->track = preferred;
	if (error == 0 || preferred == &track_mprotect || r->captured)
		return error;
	log_debug("region %s: tracking by mprotect(2): %s", r->name, strerror(-error));
	r->track = &track_mprotect;
	return track_mprotect.attach(r);
}

int track_collect(void)
{
	return preferred == &track_uffd_async ? track_uffd_collect() : 0;
}
