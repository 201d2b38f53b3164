/* Messages of ckptfs-run to the user of the job: on standard error, with its name and, where several nodes write,
 * theirs. One thread. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

/* `node`: NULL where there is one alone; borrowed. */
void run_say_init(const char *node, bool quiet);
void run_say(const char *fmt, ...) _printf_(1, 2); /* nothing if quiet */
void run_complain(const char *fmt, ...) _printf_(1, 2);
/* With ": strerror(-r)" at its end, and returns r. */
int run_complain_errno(int r, const char *fmt, ...) _printf_(2, 3);
