/*
 * The readings that a report carries with it. The store keeps no history, so the page does: each time it is made anew,
 * the readings of the page before are taken over and one is added. They stand in the page as text, one a line, and are
 * trusted no more than any other file. When there are many, every second of the older half is left out.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define RECORD_ID_MAX 64
#define RECORD_MAX 400u /* lines of readings in a page */

struct record_reading {
	uint64_t time_s; /* wall clock */
	uint64_t logical, stored, compressed, disk; /* bytes */
	uint64_t pid, uptime_s; /* of the daemon that counted: */
	uint64_t cut, fresh; /* bytes written and cut into chunks; of these, new */
};

struct record {
	char store_id[RECORD_ID_MAX];
	struct record_reading *reading; /* in the order of time */
	size_t nr;
};

void record_release(struct record *r);
/* From a page. -EBADMSG: this is no such page. */
int record_parse(const char *page, size_t len, struct record *ret);
/* Add one, the newest; makes room. A clock that was set back drops what is from the future. */
int record_add(struct record *r, const struct record_reading *reading);
void record_print(FILE *to, const struct record *r); /* the part of the page that record_parse() finds */
