/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_dir_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/io.h"

static bool set_direct(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* The number of bytes that were written: whole blocks, or none. */
static int write_direct(int fd, const void *p, size_t len, size_t *ret)
{
	size_t whole = len - len % TIER_DIRECT_BLOCK;
	int r;

	*ret = 0;
	if (len < TIER_DIRECT_MIN || (uintptr_t)p % TIER_DIRECT_BLOCK != 0 || !set_direct(fd, true))
		return 0;
	r = io_pwrite(fd, p, whole, 0);
	if (!set_direct(fd, false))
		return r < 0 ? r : -EIO;
	if (r == -EINVAL || r == -EOPNOTSUPP)
		return 0;
	*ret = whole;
	return r;
}

int tier_dir_write(int fd, const void *p, size_t len)
{
	size_t done;
	int r = write_direct(fd, p, len, &done);

	return r < 0 || done == len ? r : io_pwrite(fd, (const char *)p + done, len - done, done);
}
