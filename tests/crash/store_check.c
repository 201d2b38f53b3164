/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/store_check.h"

#include <string.h>

#include "base/util.h"
#include "store/check/check.h"

static void finding(void *to, const struct check_finding *f)
{
	fprintf(to, "checker: %s%s%s\n", f->path ? f->path : "", f->path ? ": " : "", f->text);
}

bool store_check(const char *path, FILE *to)
{
	struct check_conf conf = { .cache = MiB(8), .read_data = true, .finding = finding, .userdata = to };
	struct check_result result;
	int r = check_store(path, &conf, &result);

	if (r < 0)
		fprintf(to, "checker: cannot check: %s\n", strerror(-r));
	return r == 0 && result.nr_left == 0;
}
