/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/kernel.h"

#include <stdio.h>

bool kernel_suffices(const char *release, unsigned major, unsigned minor)
{
	unsigned has_major, has_minor;

	if (sscanf(release, "%u.%u", &has_major, &has_minor) != 2)
		return true;
	return has_major > major || (has_major == major && has_minor >= minor);
}
