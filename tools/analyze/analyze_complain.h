/* What a command tells of on standard error, over its progress bar. */
#pragma once

#include "base/util.h"

/* The name of the command, the text and, if r is a negative errno, what it means. Returns r. */
int complain(int r, const char *fmt, ...) _printf_(2, 3);
/* The same for what no errno says. Returns -EINVAL. */
int refuse(const char *fmt, ...) _printf_(1, 2);
