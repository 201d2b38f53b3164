/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Restores a checkpoint of a tier as ordinary files. */
#pragma once

#include <stdbool.h>

#include "tools/tier/tier_access.h"

struct tier_restore {
	const char *checkpoint; /* as users name it */
	const char *directory; /* does not exist yet; its parent does */
	bool trust; /* also devices, and what grants privileges */
	bool no_owner, no_xattrs; /* leave these out */
	bool quiet;
};

/* Reports failures. -EBADMSG: the checkpoint is damaged. After a failure, nothing is left of the directory. */
int tier_restore(struct tier_access *a, const struct tier_restore *how);
