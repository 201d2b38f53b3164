/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/cancel.h"

#include <errno.h>
#include <stddef.h>

static _Thread_local const struct cancel *current;

void cancel_set(const struct cancel *c)
{
	current = c;
}

int cancel_check(void)
{
	return current && current->is_cancelled(current->userdata) ? -EINTR : 0;
}
