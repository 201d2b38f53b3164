/* Parts of a report's page, and the cells of its tables. Texts given as they are must be HTML already. */
#pragma once

#include <stdint.h>
#include <stdio.h>

struct report;

double parts_percent(uint64_t part, uint64_t whole);
void parts_open(FILE *to, const char *id, const char *title, const char *text); /* a <section>; the caller closes it */
void parts_number_cell(FILE *to, uint64_t n);
void parts_size_cell(FILE *to, uint64_t bytes);

void parts_savings(FILE *to, const struct report *r);
void parts_fragmentation(FILE *to, const struct report *r);
void parts_directories(FILE *to, const struct report *r);
