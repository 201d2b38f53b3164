/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsers of the kernel's lists of a process's mappings. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The page size of the mapping with `address`, from /proc/PID/smaps; 0: there is none. */
size_t mapping_page_size(FILE *smaps, uintptr_t address);
/* Checks in /proc/PID/maps that [start, end) is mapped, readable and writable. -ENOMEM: not mapped; -EACCES. */
int mapping_check(FILE *maps, uintptr_t start, uintptr_t end);
