/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Arguments of a fake daemon: NAME=VALUE (fake_daemon.c). */
#include "tests/cluster/fake_daemon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void parse_pages(const char *s, unsigned *pages, unsigned *nr)
{
	while (*s) {
		char *end;
		unsigned long from = strtoul(s, &end, 10), to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (; from <= to; from++) {
			if (*nr == PAGES_MAX)
				fake_fail("too many pages");
			pages[(*nr)++] = (unsigned)from;
		}
		s = *end == ',' ? end + 1 : end;
	}
}

static void parse_lists(char *s)
{
	for (char *list; (list = strsep(&s, "/")); fake.nr_lists++) {
		if (fake.nr_lists == ROUNDS_MAX)
			fake_fail("too many rounds");
		parse_pages(list, fake.pages[fake.nr_lists].v, &fake.pages[fake.nr_lists].nr);
	}
}

static void add_fetch(unsigned page, const struct link_want *owners)
{
	struct link_want *w = &fake.wants[fake.nr_wants];

	if (fake.nr_wants == FETCHES_MAX)
		fake_fail("too many fetches");
	*w = *owners;
	w->fp = page_fp(page);
	w->len = CHUNK_LEN;
	fake.fetch_pages[fake.nr_wants++] = page;
}

static void parse_fetch(char *s)
{
	char *save;

	for (char *item = strtok_r(s, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		unsigned long from = strtoul(item, &item, 10), to = *item == '-' ? strtoul(item + 1, &item, 10) : from;
		struct link_want owners = { 0 };

		while (*item == ':' || *item == '.') {
			if (fake.nr_ids == IDS_MAX)
				fake_fail("too many owners");
			memset(fake.ids[fake.nr_ids], (int)strtoul(item + 1, &item, 10), 16);
			owners.owners[owners.nr_owners++] = (uint16_t)fake.nr_ids++;
		}
		for (; from <= to; from++)
			add_fetch((unsigned)from, &owners);
	}
}

static void parse_calls(char *s)
{
	char *save;

	for (char *item = strtok_r(s, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		char *id = strchr(item, ':');
		struct call c = { .type = LINK_PUT };
		unsigned long nr;

		if (!id)
			fake_fail("a call without a store");
		*id++ = '\0';
		while (c.type <= LINK_QUERY && !is_named(item, message_name(c.type)))
			c.type++;
		memset(c.id, (int)strtoul(id, &id, 10), sizeof(c.id));
		nr = *id == '*' ? strtoul(id + 1, NULL, 10) : 1;
		if (c.type > LINK_QUERY || nr > CALLS_MAX - fake.nr_calls)
			fake_fail("no such call, or too many");
		while (nr-- > 0)
			fake.calls[fake.nr_calls++] = c;
	}
}

void parse_argument(char *arg)
{
	char *value = strchr(arg, '=');

	if (!value)
		fake_fail(arg);
	*value++ = '\0';
	if (strcmp(arg, "id") == 0)
		memset(fake.welcome.store_id, atoi(value), sizeof(fake.welcome.store_id));
	else if (strcmp(arg, "key") == 0)
		memset(fake.welcome.proof_key, atoi(value), sizeof(fake.welcome.proof_key));
	else if (strcmp(arg, "name") == 0)
		snprintf(fake.welcome.name, sizeof(fake.welcome.name), "%s", value);
	else if (strcmp(arg, "hash") == 0)
		fake.welcome.hash = (uint32_t)atoi(value);
	else if (strcmp(arg, "incompat") == 0)
		fake.welcome.incompat = (uint32_t)atoi(value);
	else if (strcmp(arg, "replicas") == 0)
		fake.welcome.replicas = (uint32_t)atoi(value);
	else if (strcmp(arg, "max") == 0)
		fake.welcome.popular_max = (uint64_t)atoll(value);
	else if (strcmp(arg, "pages") == 0)
		parse_lists(value);
	else if (strcmp(arg, "holds") == 0)
		parse_pages(value, fake.holds, &fake.nr_holds);
	else if (strcmp(arg, "lost") == 0)
		parse_pages(value, fake.lost, &fake.nr_lost);
	else if (strcmp(arg, "refers") == 0)
		parse_pages(value, fake.refers, &fake.nr_refers);
	else if (strcmp(arg, "pinned") == 0)
		parse_pages(value, fake.pinned, &fake.nr_pinned);
	else if (strcmp(arg, "referred") == 0)
		fake.referred = (unsigned)atoi(value);
	else if (strcmp(arg, "missing") == 0)
		fake.missing = value;
	else if (strcmp(arg, "collect") == 0)
		fake.collections = (unsigned)atoi(value);
	else if (strcmp(arg, "fetch") == 0)
		parse_fetch(value);
	else if (strcmp(arg, "calls") == 0)
		parse_calls(value);
	else if (strcmp(arg, "puts") == 0)
		parse_pages(value, fake.puts.v, &fake.puts.nr);
	else if (strcmp(arg, "rounds") == 0)
		fake.rounds = (unsigned)atoi(value);
	else if (strcmp(arg, "late") == 0)
		fake.late_ms = (unsigned)atoi(value);
	else if (strcmp(arg, "crosses") == 0)
		fake.crosses = atoi(value) != 0;
	else if (strcmp(arg, "refused") == 0)
		fake.refused = (unsigned)atoi(value);
	else if (strcmp(arg, "tells") == 0)
		parse_pages(value, fake.announces, &fake.nr_reports);
	else if (strcmp(arg, "shared") == 0)
		fake.awaits_shared = atoi(value) != 0;
	else if (strcmp(arg, "quit") == 0)
		fake.quit = atoi(value) != 0;
	else if (strcmp(arg, "memory") == 0)
		fake.memory = atoi(value) != 0;
	else if (strcmp(arg, "stored") == 0)
		fake.stored = -atoi(value);
	else if (strcmp(arg, "silent") == 0)
		fake.silent = value;
	else if (strcmp(arg, "die") == 0)
		fake.die = value;
	else if (strcmp(arg, "kill") == 0)
		fake.kill = value;
	else if (strcmp(arg, "times") == 0)
		fake.times = (unsigned)atoi(value);
	else if (strcmp(arg, "term") == 0)
		fake.term = value;
	else if (strcmp(arg, "freeze") == 0)
		fake.freeze = value;
	else if (strcmp(arg, "garbage") == 0)
		fake.garbage = value;
	else
		fake_fail(arg);
}
