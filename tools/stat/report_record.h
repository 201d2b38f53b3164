/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The readings stored in a report. The store keeps no history, so the page does: each new version has the readings of
 * the previous one and adds one. They are text in the page, one per line, and not trusted. If there are too many, every
 * second one of the older half is dropped.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define RECORD_ID_MAX 64
#define RECORD_MAX 400u /* lines of readings in a page */

struct record_reading {
	uint64_t time_s; /* wall clock */
	uint64_t logical, stored, compressed, disk; /* bytes */
	uint64_t pid, uptime_s; /* of the daemon, for the counters */
	uint64_t cut, fresh; /* bytes cut into chunks since its start; of these, new */
};

struct record {
	char store_id[RECORD_ID_MAX];
	struct record_reading *reading; /* in the order of time */
	size_t nr;
};

void record_release(struct record *r);
/* Reads the record from a page. -EBADMSG: not a report. */
int record_parse(const char *page, size_t len, struct record *ret);
/* Adds the newest reading, and thins out older ones if needed. Drops readings from the future of the clock. */
int record_add(struct record *r, const struct record_reading *reading);
/*
 * The store's mean growth on disk in bytes per second, negative if it shrinks, over the readings of the `span_s` seconds
 * before the last one. false: unknown, since they cover less than `least_s`. `ret_span_s`: what they cover.
 */
bool record_growth(const struct record *r, uint64_t span_s, uint64_t least_s, double *ret, uint64_t *ret_span_s);
void record_print(FILE *to, const struct record *r); /* prints the part of the page that record_parse() reads */
