/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Ctrl-C, SIGTERM, or SIGHUP of a closed terminal ends a command at its next safe point, with status 130. Only one thread
 * may sleep. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void interrupt_catch(void);
bool interrupted(void);
/* Returns at once on an interrupt, even one that arrived just before the call. */
void interrupt_sleep(uint64_t ns);
