/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_say.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const char *node;
static bool quiet;

void run_say_init(const char *its_node, bool is_quiet)
{
	node = its_node;
	quiet = is_quiet;
}

/* One write per line: several nodes write to the same terminal. */
static _printf_(1, 0) void say(const char *fmt, va_list args, int r)
{
	char line[8192];
	int len = snprintf(line, sizeof(line), "ckptfs-run: %s%s", node ? node : "", node ? ": " : "");

	vsnprintf(line + len, sizeof(line) - (size_t)len, fmt, args);
	text_printf(stderr, "%s%s%s\n", line, r < 0 ? ": " : "", r < 0 ? strerror(-r) : "");
}

void run_say(const char *fmt, ...)
{
	va_list args;

	if (quiet)
		return;
	va_start(args, fmt);
	say(fmt, args, 0);
	va_end(args);
}

void run_complain(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	say(fmt, args, 0);
	va_end(args);
}

int run_complain_cause(int r, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	say(fmt, args, 0);
	va_end(args);
	return r;
}

bool run_say_is_of_several(void)
{
	return node;
}

void run_say_no_more(void)
{
	quiet = true;
}

int run_complain_errno(int r, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	say(fmt, args, r);
	va_end(args);
	return r;
}
