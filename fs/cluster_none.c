/* SPDX-License-Identifier: GPL-3.0-or-later */
/* In place of mpi-agent/daemon in a build without the cluster (-Dmpi=disabled). */
#include "fs/cluster_hooks.h"

#include <stddef.h>

const struct cluster_hooks *cluster_hooks(void)
{
	return NULL;
}
