/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sections of a report, and cells of its tables. Text arguments are HTML, and not escaped. */
#pragma once

#include <stdint.h>
#include <stdio.h>

struct report;

double parts_percent(uint64_t part, uint64_t whole);
void parts_open(FILE *to, const char *id, const char *title, const char *text); /* the caller closes the <section> */
void parts_number_cell(FILE *to, uint64_t n);
void parts_size_cell(FILE *to, uint64_t bytes);

void parts_savings(FILE *to, const struct report *r);
void parts_fragmentation(FILE *to, const struct report *r);
void parts_directories(FILE *to, const struct report *r);
