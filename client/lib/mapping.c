/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/lib/mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

size_t mapping_page_size(FILE *smaps, uintptr_t address)
{
	char line[512];
	bool inside = false;

	while (fgets(line, sizeof(line), smaps)) {
		uintptr_t start, end;
		size_t kib;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
			inside = address >= start && address < end;
		else if (inside && sscanf(line, "KernelPageSize: %zu kB", &kib) == 1)
			return kib << 10;
	}
	return 0;
}

int mapping_check(FILE *maps, uintptr_t start, uintptr_t end)
{
	bool begins = true; /* a name may be longer than `line` */
	char line[512];

	while (start < end && fgets(line, sizeof(line), maps)) {
		uintptr_t from, to;
		char access[5];
		bool is_entry = begins;

		begins = strchr(line, '\n');
		if (!is_entry || sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, access) != 3 || to <= start)
			continue;
		if (from > start)
			return -ENOMEM;
		if (access[0] != 'r' || access[1] != 'w')
			return -EACCES;
		start = to;
	}
	return start < end ? -ENOMEM : 0;
}
