/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>

#include "base/log.h"
#include "base/util.h"
#include "fs/control/metrics.h"

int metrics_listen(const char *address, _unused_ struct metrics **ret)
{
	log_error("option metrics=%s: this mount.ckptfs was built without libmicrohttpd; ckptfs stat --prometheus prints the same",
		  address);
	return -EINVAL;
}

int metrics_start(_unused_ struct metrics *m, _unused_ struct fs *fs)
{
	return -EINVAL; /* metrics_listen() never succeeds */
}

void metrics_stop(_unused_ struct metrics *m)
{
}
