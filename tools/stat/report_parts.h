/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sections of a report, and cells of its tables. Text arguments are HTML, and not escaped. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "tools/doctor/checkup.h"

struct report;
struct walk;

double parts_percent(uint64_t part, uint64_t whole);
void parts_open(FILE *to, const char *id, const char *title, const char *text); /* the caller closes the <section> */
void parts_number_cell(FILE *to, uint64_t n);
void parts_size_cell(FILE *to, uint64_t bytes);

void parts_time(FILE *to, time_t t);
void parts_badge(FILE *to, enum health health, const char *text);
void parts_path(FILE *to, const char *path); /* relative to the mountpoint; "": that itself */

void parts_percent_cell(FILE *to, uint64_t part, uint64_t whole);
char *parts_below(const char *mountpoint, const char *name); /* a path, to be freed; NULL: no memory */
void parts_bar_cell(FILE *to, uint64_t part, uint64_t whole);
/* The level of directories that a report shows: one level down, or two if there is only one directory there. */
unsigned parts_level(const struct walk *w);

void parts_health(FILE *to, const struct report *r);
void parts_seals(FILE *to, const struct report *r);
void parts_delete(FILE *to, const struct report *r);
void parts_files(FILE *to, const struct report *r);
void parts_savings(FILE *to, const struct report *r);
void parts_fragmentation(FILE *to, const struct report *r);
void parts_directories(FILE *to, const struct report *r);
