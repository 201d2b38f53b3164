/* Ctrl-C or SIGTERM ends a command at its next safe place, with status 130. Caught in any thread, slept in one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void interrupt_catch(void);
bool interrupted(void);
/* Sleep; an interrupt, even one that came just before, ends it at once. */
void interrupt_sleep(uint64_t ns);
