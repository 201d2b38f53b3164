/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Replaces compact_replicas.c in a build without the cluster (-Dmpi=disabled). */
#include "tools/compact/compact_replicas.h"

#include "tools/analyze/analyze_complain.h"

int compact_replicas_add(struct files *fs, const char *directory)
{
	(void)fs;
	(void)directory;
	return refuse("option --replicas: this ckptfs-compact was built without the cluster (meson -Dmpi=disabled)");
}
