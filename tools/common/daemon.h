/* What programs share that have a mount's daemon do long work. */
#pragma once

#include <stdbool.h>

bool is_store(const char *path); /* a directory that has a superblock */
/* Why the daemon did not do it, on standard error. `work` as in "a collection", `verb` as in "collect". */
void tell_refusal(const char *tool, const char *path, const char *work, const char *verb, int r);
/* Why the directory could not be opened; `wanted` is what the tool is given. */
void tell_unopened(const char *tool, const char *path, const char *wanted, int r);
