/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A crash without a process that dies: a store as it is at one moment, which takes the place of the store when that has
 * been closed. A process of its own would need exec: threads, such as those of RocksDB, do not survive a fork.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* Copying takes a while: if files came, went or changed meanwhile, once more. */
static inline int moment_copy(const char *path)
{
	char command[1024];

	snprintf(command, sizeof(command),
		 "look() { find %s -printf '%%p %%s %%T@\n' | sort; }; for i in $(seq 100); do rm -rf %s.then;"
		 " before=$(look); cp -a --sparse=always %s %s.then 2>/dev/null && test \"$before\" = \"$(look)\" && exit;"
		 " done; exit 1",
		 path, path, path, path);
	return system(command);
}

static inline int moment_restore(const char *path)
{
	char command[512];

	snprintf(command, sizeof(command), "rm -rf %s && mv %s.then %s", path, path, path);
	return system(command);
}
