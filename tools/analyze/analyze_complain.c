/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_complain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "tools/common/daemon.h"

static _printf_(1, 0) void print_message(const char *fmt, va_list args)
{
	fprintf(stderr, "%s%s: ", isatty(STDERR_FILENO) ? "\r\033[K" : "", program_invocation_short_name);
	text_vprintf(stderr, fmt, args);
}

int complain(int r, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	print_message(fmt, args);
	va_end(args);
	fprintf(stderr, ": %s\n", path_error_text(r));
	return r;
}

int refuse(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	print_message(fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return -EINVAL;
}
