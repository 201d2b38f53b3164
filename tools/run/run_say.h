/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Messages of ckptfs-run to the user: on standard error, prefixed with its name and, in a job on several nodes, that of
 * the node. One thread. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

/* `node`: NULL in a job on one node; borrowed. */
void run_say_init(const char *node, bool quiet);
void run_say(const char *fmt, ...) _printf_(1, 2); /* prints nothing if quiet */
void run_complain(const char *fmt, ...) _printf_(1, 2);
/* Appends ": strerror(-r)", and returns r. */
int run_complain_errno(int r, const char *fmt, ...) _printf_(2, 3);
/* Only returns r, for messages that name the cause themselves. */
int run_complain_cause(int r, const char *fmt, ...) _printf_(2, 3);
bool run_say_is_of_several(void); /* nodes */
void run_say_no_more(void); /* as if quiet from now on */
