/* What the kernel says of a process's memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The page size of the mapping that has `address`, of lines as /proc/PID/smaps has them; 0: there is none. */
size_t mapping_page_size(FILE *smaps, uintptr_t address);
/* Is all from `start` to before `end` mapped and can be read and written, by lines as /proc/PID/maps has them? -ENOMEM:
 * not mapped; -EACCES. */
int mapping_check(FILE *maps, uintptr_t start, uintptr_t end);
