/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/gc/gc_tier.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "store/tier/collect/tier_collect.h"
#include "store/tier/tier.h"
#include "store/tier/tier_open.h"
#include "store/tier/tier_probe.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/gc/retain.h"

#define SCHEMA_VERSION 1

/* A checkpoint and the decision on it. */
struct choice {
	struct tier_sealed *sealed;
	size_t dir_len; /* of its path */
	const char *why; /* reason for keeping it; NULL: to be removed */
};

struct run {
	const struct gc_tier_request *q;
	struct progress progress;
	struct choice *v; /* by store, directory and owner, then oldest first */
	size_t nr;
};

static bool show_step(void *userdata, const char *what, uint64_t done, uint64_t total)
{
	struct run *run = userdata;

	progress_show(&run->progress, what, done, total, false);
	return !interrupted();
}

/* --- retention --- */

static size_t dir_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

/* A policy counts checkpoints per owner, so that other users cannot displace them. */
static int compare_groups(const struct choice *x, const struct choice *y)
{
	const struct tier_sealed *s = x->sealed, *t = y->sealed;
	int k = memcmp(s->store, t->store, TIER_ID_LEN);

	if (k == 0)
		k = memcmp(s->path, t->path, MIN(x->dir_len, y->dir_len));
	if (k == 0)
		k = (x->dir_len > y->dir_len) - (x->dir_len < y->dir_len);
	return k != 0 ? k : (s->uid > t->uid) - (s->uid < t->uid);
}

static int compare_choices(const void *a, const void *b)
{
	const struct choice *x = a, *y = b;
	const struct tier_sealed *s = x->sealed, *t = y->sealed;
	int k = compare_groups(x, y);

	if (k != 0)
		return k;
	if (s->sealed_ns != t->sealed_ns)
		return s->sealed_ns < t->sealed_ns ? -1 : 1;
	return s->ino != t->ino ? (s->ino < t->ino ? -1 : 1) : (s->number > t->number) - (s->number < t->number);
}

/* A seal has two manifests if packs of the first one were missing when a writer was opened. */
static bool is_repeated(const struct choice *c, const struct choice *next)
{
	return compare_groups(c, next) == 0 && c->sealed->ino == next->sealed->ino &&
	       c->sealed->sealed_ns == next->sealed->sealed_ns;
}

/* The others are removed because the last one is kept. */
static void mark_group(struct choice *v, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		v[i].sealed->is_removed = v[i].why == NULL;
		v[nr - 1].sealed->is_relied_on |= v[i].why == NULL;
	}
}

/* Without a policy all checkpoints are kept, each once. */
static void keep_group(struct choice *v, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		v[i].why = i + 1 == nr || !is_repeated(&v[i], &v[i + 1]) ? "" : NULL;
}

/* Applies the policy to the checkpoints of one owner in one directory of a store. */
static int choose_group(const struct keep_policy *keep, struct choice *v, size_t nr)
{
	struct retain_seal *seals = calloc(nr, sizeof(*seals));
	size_t used = 0;

	if (!seals)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++)
		if (i + 1 == nr || !is_repeated(&v[i], &v[i + 1])) {
			const char *path = v[i].sealed->path;

			seals[used].name = path + v[i].dir_len + (v[i].dir_len > 0);
			seals[used].seal.sealed_ns = v[i].sealed->sealed_ns;
			seals[used++].is_tagged = v[i].sealed->is_tagged;
		}
	retain_choose(keep, (int64_t)now_ns(), seals, used, used - 1);
	used = 0;
	for (size_t i = 0; i < nr; i++)
		if (i + 1 == nr || !is_repeated(&v[i], &v[i + 1])) {
			v[i].why = i + 1 == nr ? "newest" : seals[used].why;
			used++;
		}
	free(seals);
	return 0;
}

static int choose_all(struct run *run, struct tier_collector *c)
{
	size_t nr;
	struct tier_sealed *v = tier_collector_sealed(c, &run->nr);
	int r = 0;

	run->v = calloc(MAX(run->nr, (size_t)1), sizeof(*run->v));
	if (!run->v)
		return -ENOMEM;
	for (size_t i = 0; i < run->nr; i++)
		run->v[i] = (struct choice){ .sealed = &v[i], .dir_len = dir_len(v[i].path) };
	if (run->nr > 0)
		qsort(run->v, run->nr, sizeof(*run->v), compare_choices);
	for (size_t i = 0; i < run->nr && r == 0; i += nr) {
		for (nr = 1; i + nr < run->nr && compare_groups(&run->v[i], &run->v[i + nr]) == 0;)
			nr++;
		if (keep_is_empty(&run->q->keep))
			keep_group(&run->v[i], nr);
		else
			r = choose_group(&run->q->keep, &run->v[i], nr);
		mark_group(&run->v[i], nr);
	}
	return r;
}

/* --- output --- */

static void store_hex(const uint8_t store[TIER_ID_LEN], unsigned bytes, char *ret)
{
	for (unsigned i = 0; i < bytes; i++)
		sprintf(ret + 2 * i, "%02x", store[i]);
}

static void show_choices(const struct run *run)
{
	const struct gc_tier_request *q = run->q;

	for (size_t i = 0; i < run->nr && !keep_is_empty(&q->keep); i++) {
		const struct choice *c = &run->v[i];
		char store[9];

		store_hex(c->sealed->store, 4, store);
		printf("%-7s ", c->why ? "keep" : q->delete ? "removed" : "remove");
		text_print(stdout, c->sealed->path[0] ? c->sealed->path : "/");
		printf("  %s of store %s%s%s\n", human_size(c->sealed->bytes).s, store, c->why ? ": " : "",
		       c->why ? c->why : "");
	}
}

static void show_text(const struct run *run, const struct tier_collect_figures *f)
{
	const struct gc_tier_request *q = run->q;

	show_choices(run);
	printf("In use:    %s in %s of %s\n", human_size(f->pack_bytes).s, human_nr(f->nr_packs, "pack").s,
	       human_nr(f->nr_kept, "sealed checkpoint").s);
	if (q->delete)
		printf("Freed:     %s in %s\n", human_size(f->deleted_bytes).s, human_nr(f->nr_deleted, "pack").s);
	else if (f->nr_dropped > 0)
		printf("Garbage:   %s in %s\n", human_size(f->dropped_bytes).s, human_nr(f->nr_dropped, "pack").s);
	if (f->nr_pending > 0)
		printf("Pending:   %s in %s; the next collection deletes what is still not needed\n",
		       human_size(f->pending_bytes).s, human_nr(f->nr_pending, "pack").s);
	if (!q->delete && f->nr_removed + f->nr_dropped + f->nr_pending > 0)
		printf("Nothing was changed. --delete would remove %s.\n", human_nr(f->nr_removed, "sealed checkpoint").s);
}

static void show_json(const struct run *run, const struct tier_collect_figures *f, int r)
{
	const struct {
		const char *name;
		uint64_t value;
	} figures[] = {
		{ "kept", f->nr_kept },		    { "removed", run->q->delete ? f->nr_removed : 0 },
		{ "packs", f->nr_packs },	    { "pack_bytes", f->pack_bytes },
		{ "garbage_packs", f->nr_dropped }, { "garbage_bytes", f->dropped_bytes },
		{ "pending_packs", f->nr_pending }, { "pending_bytes", f->pending_bytes },
		{ "freed_packs", f->nr_deleted },   { "freed_bytes", f->deleted_bytes },
	};
	struct json j = json_to_file(stdout);

	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	json_string(&j, "tier", run->q->url);
	json_open_array(&j, "sealed");
	for (size_t i = 0; i < run->nr; i++) {
		const struct choice *c = &run->v[i];
		char store[2 * TIER_ID_LEN + 1];

		store_hex(c->sealed->store, TIER_ID_LEN, store);
		json_open(&j, NULL);
		json_string(&j, "store", store);
		json_u64(&j, "number", c->sealed->number);
		json_string(&j, "path", c->sealed->path);
		json_i64(&j, "sealed_ns", c->sealed->sealed_ns);
		json_u64(&j, "bytes", c->sealed->bytes);
		json_u64(&j, "uid", c->sealed->uid);
		json_bool(&j, "keep", c->why);
		json_string(&j, "why", c->why ? c->why : "");
		json_close(&j);
	}
	json_close_array(&j);
	json_bool(&j, "deleted", run->q->delete);
	json_bool(&j, "complete", r == 0);
	for (size_t i = 0; i < ARRAY_SIZE(figures); i++)
		json_u64(&j, figures[i].name, figures[i].value);
	json_end(&j);
}

/* --- the command --- */

static int collect(struct run *run, struct tier *t)
{
	const struct tier_collect_conf conf = {
		.read_tags = run->q->keep.tagged,
		.forget_missing = run->q->forget_missing,
		.step = show_step,
		.userdata = run,
	};
	_cleanup_(tier_collector_closep) struct tier_collector *c = NULL;
	struct tier_collect_figures f;
	int r = tier_collector_open(t, &conf, &c);

	if (r == 0)
		r = choose_all(run, c);
	if (r == 0)
		r = tier_collector_mark(c);
	if (r == 0 && run->q->delete)
		r = tier_collector_delete(c);
	progress_clear(&run->progress);
	if (r < 0)
		return r;
	tier_collector_figures(c, &f);
	if (run->q->json)
		show_json(run, &f, r);
	else if (!run->q->quiet)
		show_text(run, &f);
	return 0;
}

/* A back end whose puts are not atomic must not be collected. */
static int probe(const struct gc_tier_request *q, struct tier *t)
{
	char reason[TIER_PROBE_REASON_MAX] = "";
	int r = q->delete ? tier_probe(t, reason) : 0;

	if (r == -EOPNOTSUPP)
		text_printf(stderr, "%s: %s: cannot be used as a tier: %s\n", q->tool, q->url, reason);
	return r;
}

int gc_tier(const struct gc_tier_request *q)
{
	_cleanup_(tier_closep) struct tier *t = NULL;
	struct run run = { .q = q };
	int r = tier_open(q->url, &(struct tier_conf){ .config_file = q->config_file }, &t);

	if (r < 0)
		return r; /* logged */
	progress_init(&run.progress);
	run.progress.on &= !q->quiet && !q->json;
	r = probe(q, t);
	if (r == 0)
		r = collect(&run, t);
	progress_clear(&run.progress);
	if (r < 0 && r != -ECANCELED)
		text_printf(stderr, "%s: %s: cannot collect: %s\n", q->tool, q->url, strerror(-r));
	free(run.v);
	return r;
}
