#include "client/mapping.h"

#include <inttypes.h>
#include <stdbool.h>

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
