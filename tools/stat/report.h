/*
 * ckptfs-stat --html: one page about a mount that needs nothing but itself.
 *
 * The mount's figures are the daemon's; what lies where, how scattered and how old it is comes from a walk over all
 * files (report_walk.h); how it all developed from the readings that the page carries along (report_record.h).
 */
#pragma once

#include "tools/stat/report_record.h"
#include "tools/stat/report_walk.h"

struct json_flat;

struct report {
	const struct json_flat *mount;
	const struct walk *walk;
	const struct record *record;
};

void report_print(FILE *to, const struct report *r);
/*
 * Make the page, or make it anew: whole, or the one before stays. A file that is there and no report of this store is
 * left alone. Says what is wrong: -EINVAL it cannot be done with this path or file, -EINTR.
 */
int report_write(const char *file, const char *mountpoint);
