/* Which way of tracking: for all, and for a region that does not allow it. */
#include "client/track.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "client/client.h"
#include "client/track_uffd.h"

static const struct track *preferred = &track_mprotect;

int track_start(void)
{
	bool noted = client.options.mode == CKPTFS_MODE_SYNC;
	const char *why = "";
	int r;

	preferred = &track_mprotect;
	if (client.options.tracking == CKPTFS_TRACKING_MPROTECT)
		return 0;
	r = track_uffd_start(noted, &why);
	if (r < 0 && noted && client.options.tracking == CKPTFS_TRACKING_USERFAULTFD) {
		log_notice("checkpoints: writes are noticed one by one: %s", why);
		noted = false;
		r = track_uffd_start(noted, &why);
	}
	if (r == 0) {
		preferred = noted ? &track_uffd_noted : &track_uffd;
		return 0;
	}
	if (client.options.tracking == CKPTFS_TRACKING_USERFAULTFD)
		return log_errno(-EOPNOTSUPP, "checkpoints: no userfaultfd: %s", why);
	log_notice("checkpoints: writes are noticed by mprotect(2): %s", why);
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

/* Not all memory can be tracked by userfaultfd: files that are mapped privately cannot, so data of programs cannot. */
int track_attach(struct region *r)
{
	int error = preferred->attach(r);

	r->track = preferred;
	if (error == 0 || preferred == &track_mprotect || r->captured)
		return error;
	log_debug("region %s: by mprotect(2): %s", r->name, strerror(-error));
	r->track = &track_mprotect;
	return track_mprotect.attach(r);
}

int track_collect(void)
{
	return preferred == &track_uffd_noted ? track_uffd_collect() : 0;
}
