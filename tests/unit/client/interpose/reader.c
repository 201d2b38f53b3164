/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader.h"

#include <unistd.h>

ssize_t reader_read(int fd, void *p, size_t len)
{
	return read(fd, p, len);
}
