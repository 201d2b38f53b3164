/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Packs are counted as a whole, from the sizes in manifests. A pack is exclusive to a checkpoint, or to a store, if no
 * other refers to it. Manifests are read store by store, so that a pack is counted once for each store.
 */
#include "tools/tier/tier_usage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_read.h"
#include "tools/tier/tier_list.h"

#define SCHEMA_VERSION 1
#define MANY UINT32_MAX
#define PACKS_PREFIX "packs/"

enum kind { PACKS, UNREFERENCED, MANIFESTS, KEYS, COLLECTIONS, PROBE, OTHERS, NR_KINDS };

static const char *const kinds[NR_KINDS] = {
	[PACKS] = "packs", [UNREFERENCED] = "unreferenced", [MANIFESTS] = "manifests",
	[KEYS] = "keys",   [COLLECTIONS] = "collections",   [PROBE] = "probe", [OTHERS] = "others",
};

struct amount {
	uint64_t nr, bytes;
};

struct pack {
	uint8_t id[TIER_ID_LEN];
	uint64_t bytes; /* 0: a free slot */
	uint32_t checkpoint, store; /* numbers plus 1 of the only one that refers to it; or MANY */
	uint32_t last_store; /* number plus 1 of the last one that counted it */
	bool is_listed;
};

struct one {
	uint64_t nr, bytes; /* checkpoints whose manifest was read; their files */
	uint64_t stored, exclusive; /* bytes of packs that it refers to; that no other refers to */
};

struct store {
	uint8_t id[TIER_ID_LEN];
	struct one sum;
};

struct unsized {
	size_t name; /* in `names` */
	enum kind kind;
};

struct usage {
	struct tier_access *a;
	struct tier_checkpoints list;
	struct mutex lock; /* of all below, while several threads work; a leaf */
	struct pack *packs; /* open addressing */
	size_t nr_packs, size; /* a power of two, at most 3/4 full */
	struct store *stores;
	size_t nr_stores, stores_room;
	uint32_t *store_of; /* of each checkpoint */
	struct one *ones; /* of each checkpoint */
	size_t *todo; /* checkpoints of the current store; then all, by name */
	size_t nr_todo;
	uint32_t store; /* the current one */
	struct amount amounts[NR_KINDS];
	uint64_t nr_missing; /* packs that are not in the list */
	struct buf names; /* objects without a known size, each with a zero byte */
	struct unsized *unsized;
	size_t nr_unsized, unsized_room;
	int error; /* of a manifest */
};

/* --- packs --- */

static struct pack *slot_of(struct usage *u, const uint8_t id[TIER_ID_LEN])
{
	size_t i;

	memcpy(&i, id, sizeof(i)); /* a digest */
	for (i &= u->size - 1; u->packs[i].bytes > 0 && memcmp(u->packs[i].id, id, TIER_ID_LEN) != 0;)
		i = (i + 1) & (u->size - 1);
	return &u->packs[i];
}

static int grow(struct usage *u)
{
	struct pack *old = u->packs;
	size_t size = u->size;

	if (u->nr_packs < size / 4 * 3)
		return 0;
	u->packs = calloc(MAX(2 * size, (size_t)1024), sizeof(*u->packs));
	if (!u->packs) {
		u->packs = old;
		return -ENOMEM;
	}
	u->size = MAX(2 * size, (size_t)1024);
	for (size_t i = 0; i < size; i++)
		if (old[i].bytes > 0)
			*slot_of(u, old[i].id) = old[i];
	free(old);
	return 0;
}

static int count_pack(struct usage *u, uint32_t checkpoint, const struct tier_footer *f) REQUIRES(u->lock)
{
	int r = grow(u);
	struct pack *p;

	if (r < 0)
		return r;
	p = slot_of(u, f->id);
	if (p->bytes == 0) {
		*p = (struct pack){ .bytes = tier_pack_len(f), .checkpoint = checkpoint + 1, .store = u->store + 1 };
		memcpy(p->id, f->id, sizeof(p->id));
		u->nr_packs++;
	}
	if (p->checkpoint != checkpoint + 1)
		p->checkpoint = MANY;
	if (p->store != u->store + 1)
		p->store = MANY;
	if (p->last_store != u->store + 1)
		u->stores[u->store].sum.stored += p->bytes;
	p->last_store = u->store + 1;
	u->ones[checkpoint].stored += p->bytes;
	return 0;
}

/* --- manifests --- */

static int count_manifest(void *userdata, size_t i)
{
	struct usage *u = userdata;
	size_t checkpoint = u->todo[i];
	_cleanup_(tier_reader_closep) struct tier_reader *reader = NULL;
	const struct tier_manifest *m = NULL;
	int r = tier_reader_open(u->a->tier, u->list.v[checkpoint].name.s, &reader);

	if (r == 0)
		m = tier_reader_manifest(reader);
	mutex_lock(&u->lock);
	if (r < 0 && (u->error == 0 || r == -EBADMSG))
		u->error = r; /* was logged */
	if (m) {
		u->ones[checkpoint].nr = 1;
		u->amounts[MANIFESTS].nr++;
		u->amounts[MANIFESTS].bytes += sizeof(struct tier_manifest_disk) + m->path_len + m->catalog_len +
					       m->nr_packs * sizeof(struct tier_pack_ref_disk);
	}
	r = r == -ENOMEM ? r : 0;
	for (uint32_t k = 0; m && k < m->nr_packs && r == 0; k++) {
		struct tier_footer f;

		r = tier_manifest_pack(m, k, &f);
		if (r == 0)
			r = count_pack(u, (uint32_t)checkpoint, &f);
	}
	mutex_unlock(&u->lock);
	return r;
}

static int find_stores(struct usage *u)
{
	int r = 0;

	for (size_t i = 0; i < u->list.nr && r == 0; i++) {
		const struct tier_checkpoint *c = &u->list.v[i];
		size_t s = 0;

		while (s < u->nr_stores && memcmp(u->stores[s].id, c->store, TIER_ID_LEN) != 0)
			s++;
		if (s == u->nr_stores) {
			r = list_grow(&u->stores, u->nr_stores, &u->stores_room, sizeof(*u->stores));
			if (r < 0)
				break;
			u->stores[u->nr_stores] = (struct store){ .sum = { 0 } };
			memcpy(u->stores[u->nr_stores++].id, c->store, TIER_ID_LEN);
		}
		u->store_of[i] = (uint32_t)s;
		u->stores[s].sum.nr++; /* also if its manifest is damaged */
		u->stores[s].sum.bytes += c->bytes;
		u->ones[i].bytes = c->bytes;
	}
	return r;
}

static int count_manifests(struct usage *u)
{
	int r = find_stores(u);

	for (u->store = 0; u->store < u->nr_stores && r == 0; u->store++) {
		u->nr_todo = 0;
		for (size_t i = 0; i < u->list.nr; i++)
			if (u->store_of[i] == u->store)
				u->todo[u->nr_todo++] = i;
		r = tier_access_each(u->a, u->nr_todo, count_manifest, u);
	}
	return r;
}

/* --- the list of objects --- */

static bool parse_pack(const char *name, uint8_t ret[TIER_ID_LEN])
{
	const char *hex = name + strlen(PACKS_PREFIX) + 3;

	if (strlen(name) != strlen(PACKS_PREFIX) + 3 + (size_t)2 * TIER_ID_LEN)
		return false;
	for (unsigned i = 0; i < TIER_ID_LEN; i++)
		if (sscanf(hex + (size_t)2 * i, "%2" SCNx8, &ret[i]) != 1)
			return false;
	return strcmp(tier_pack_name(ret).s, name) == 0;
}

static enum kind kind_of(const char *name)
{
	static const struct {
		const char *prefix;
		enum kind kind;
	} kinds_by_prefix[] = {
		{ "keys/", KEYS }, { "gc/", COLLECTIONS }, { "marks/", COLLECTIONS }, { "probe/", PROBE }
	};
	uint8_t store[TIER_ID_LEN];
	uint64_t number;

	for (size_t i = 0; i < ARRAY_SIZE(kinds_by_prefix); i++)
		if (strncmp(name, kinds_by_prefix[i].prefix, strlen(kinds_by_prefix[i].prefix)) == 0)
			return kinds_by_prefix[i].kind;
	return tier_manifest_name_parse(name, store, &number) ? MANIFESTS : OTHERS;
}

static int compare_names(const void *a, const void *b, void *userdata)
{
	const struct usage *u = userdata;

	return strcmp(u->list.v[*(const size_t *)a].name.s, u->list.v[*(const size_t *)b].name.s);
}

static void sort_names(struct usage *u)
{
	for (size_t i = 0; i < u->list.nr; i++)
		u->todo[i] = i;
	if (u->list.nr > 0)
		qsort_r(u->todo, u->list.nr, sizeof(*u->todo), compare_names, u);
}

/* Was this manifest counted? */
static bool is_read(const struct usage *u, const char *name)
{
	size_t low = 0, high = u->list.nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int k = strcmp(u->list.v[u->todo[middle]].name.s, name);

		if (k == 0)
			return u->ones[u->todo[middle]].nr > 0;
		if (k < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static int count_name(struct usage *u, const char *name)
{
	uint8_t id[TIER_ID_LEN];
	bool is_pack = parse_pack(name, id);
	struct pack *p = is_pack && u->size > 0 ? slot_of(u, id) : NULL;
	enum kind kind = is_pack ? UNREFERENCED : kind_of(name);
	int r;

	if (p && p->bytes > 0) {
		p->is_listed = true;
		u->amounts[PACKS].nr++;
		u->amounts[PACKS].bytes += p->bytes;
		return 0;
	}
	if (kind == MANIFESTS && is_read(u, name))
		return 0;
	r = list_grow(&u->unsized, u->nr_unsized, &u->unsized_room, sizeof(*u->unsized));
	if (r == 0)
		u->unsized[u->nr_unsized++] = (struct unsized){ u->names.len, kind };
	buf_add(&u->names, name, strlen(name) + 1);
	return r == 0 ? buf_error(&u->names) : r;
}

static int count_names(struct usage *u)
{
	struct tier_request q = { .op = TIER_LIST, .name = "", .more = true };
	char after[TIER_NAME_MAX + 1] = "";
	int r = 0;

	while (r == 0 && q.more && !atomic_load(&u->a->is_stopping)) {
		q = (struct tier_request){ .op = TIER_LIST, .name = "", .after = after[0] ? after : NULL };
		r = tier_call(u->a->tier, &q);
		for (size_t at = 0; at < q.names.len && r == 0;) {
			const char *name = (const char *)q.names.data + at;

			snprintf(after, sizeof(after), "%s", name);
			r = count_name(u, name);
			at += strlen(name) + 1;
		}
		q.more &= q.names.len > 0;
		buf_release(&q.names);
	}
	return r;
}

static int count_unsized(void *userdata, size_t i)
{
	struct usage *u = userdata;
	const struct unsized *x = &u->unsized[i];
	uint8_t byte;
	struct tier_request q = {
		.op = TIER_GET, .name = (const char *)u->names.data + x->name, .buf = &byte, .len = sizeof(byte)
	};
	int r = tier_call(u->a->tier, &q);

	if (r == -ENOENT)
		return 0; /* deleted since it was listed */
	mutex_lock(&u->lock);
	u->amounts[x->kind].nr++;
	u->amounts[x->kind].bytes += r == 0 ? q.size : 0;
	mutex_unlock(&u->lock);
	return r;
}

static void sum_up(struct usage *u)
{
	for (size_t i = 0; i < u->size; i++) {
		const struct pack *p = &u->packs[i];

		if (p->bytes == 0)
			continue;
		u->nr_missing += !p->is_listed;
		if (p->checkpoint != MANY)
			u->ones[p->checkpoint - 1].exclusive += p->bytes;
		if (p->store != MANY)
			u->stores[p->store - 1].sum.exclusive += p->bytes;
	}
}

/* --- output --- */

static void add_one(struct json *j, const struct one *x)
{
	json_u64(j, "bytes", x->bytes);
	json_u64(j, "stored_bytes", x->stored);
	json_u64(j, "exclusive_bytes", x->exclusive);
}

static void print_json(const struct usage *u)
{
	struct json j = json_to_file(stdout);

	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	json_string(&j, "tier", u->a->conf.url);
	json_open(&j, "objects");
	for (enum kind k = 0; k < NR_KINDS; k++) {
		json_open(&j, kinds[k]);
		json_u64(&j, "number", u->amounts[k].nr);
		json_u64(&j, "bytes", u->amounts[k].bytes);
		json_close(&j);
	}
	json_close(&j);
	json_u64(&j, "missing_packs", u->nr_missing);
	json_bool(&j, "complete", u->error == 0 && u->list.nr_unlisted == 0);
	json_open_array(&j, "stores");
	for (size_t i = 0; i < u->nr_stores; i++) {
		json_open(&j, NULL);
		json_string(&j, "store", tier_store_id(u->stores[i].id).s);
		json_u64(&j, "checkpoints", u->stores[i].sum.nr);
		add_one(&j, &u->stores[i].sum);
		json_close(&j);
	}
	json_close_array(&j);
	json_open_array(&j, "checkpoints");
	for (size_t i = 0; i < u->list.nr; i++) {
		json_open(&j, NULL);
		tier_checkpoint_json(&j, &u->list.v[i]);
		add_one(&j, &u->ones[i]);
		json_close(&j);
	}
	json_close_array(&j);
	json_end(&j);
}

static void print_one(const struct one *x)
{
	printf("  %10s  %10s  %10s", human_size(x->bytes).s, human_size(x->stored).s, human_size(x->exclusive).s);
}

static void print_text(const struct usage *u)
{
	size_t width = strlen("CHECKPOINT");

	printf("%-12s  %9s  %10s\n", "OBJECTS", "NUMBER", "STORED");
	for (enum kind k = 0; k < NR_KINDS; k++)
		if (k == PACKS || u->amounts[k].nr > 0)
			printf("%-12s  %9" PRIu64 "  %10s\n", kinds[k], u->amounts[k].nr, human_size(u->amounts[k].bytes).s);
	printf("\n%-32s  %11s  %10s  %10s  %10s\n", "STORE", "CHECKPOINTS", "SIZE", "STORED", "EXCLUSIVE");
	for (size_t i = 0; i < u->nr_stores; i++) {
		printf("%s  %11" PRIu64, tier_store_id(u->stores[i].id).s, u->stores[i].sum.nr);
		print_one(&u->stores[i].sum);
		putchar('\n');
	}
	for (size_t i = 0; i < u->list.nr; i++)
		width = MAX(width, text_columns(tier_checkpoint_path(&u->list.v[i])));
	printf("\n%-*s  %6s  %10s  %10s  %10s  %s\n", (int)width, "CHECKPOINT", "NUMBER", "SIZE", "STORED", "EXCLUSIVE",
	       "STORE");
	for (size_t i = 0; i < u->list.nr; i++) {
		const struct tier_checkpoint *c = &u->list.v[i];
		size_t columns = text_print(stdout, tier_checkpoint_path(c));

		printf("%*s  %6" PRIu64, (int)(width - columns), "", c->number);
		print_one(&u->ones[i]);
		printf("  %s\n", tier_store_id(c->store).s);
	}
}

static void report_gaps(const struct usage *u)
{
	for (size_t i = 0; i < u->list.nr_unlisted; i++)
		tier_access_say(u->a, "%s: %s: not counted: %s", u->a->conf.url, u->list.unlisted[i].name.s,
				tier_unlisted_reason(u->list.unlisted[i].error));
	if (u->nr_missing > 0)
		tier_access_say(u->a, "%s: %s %s not in the list; %s verify %s names what is missing", u->a->conf.url,
				human_nr(u->nr_missing, "pack").s, u->nr_missing == 1 ? "is" : "are", u->a->conf.tool,
				u->a->conf.url);
}

/* --- the whole --- */

static int count_all(struct usage *u)
{
	size_t room = MAX(u->list.nr, (size_t)1);
	int r;

	u->store_of = calloc(room, sizeof(*u->store_of));
	u->ones = calloc(room, sizeof(*u->ones));
	u->todo = calloc(room, sizeof(*u->todo));
	if (!u->store_of || !u->ones || !u->todo)
		return -ENOMEM;
	r = count_manifests(u);
	sort_names(u);
	if (r == 0)
		r = count_names(u);
	if (r == 0)
		r = tier_access_each(u->a, u->nr_unsized, count_unsized, u);
	if (r == 0)
		sum_up(u);
	return r;
}

static void usage_release(struct usage *u)
{
	tier_checkpoints_release(&u->list);
	mutex_release(&u->lock);
	free(u->packs);
	free(u->stores);
	free(u->store_of);
	free(u->ones);
	free(u->todo);
	free(u->unsized);
	buf_release(&u->names);
}

int tier_usage(struct tier_access *a, bool json)
{
	_cleanup_(usage_release) struct usage u = { .a = a };
	int r;

	mutex_init(&u.lock);
	r = tier_checkpoints_get(a, &u.list);
	if (r < 0)
		return r;
	atomic_store(&a->waits, true);
	r = count_all(&u);
	atomic_store(&a->waits, false);
	if (r == 0 && atomic_load(&a->is_stopping))
		r = -EINTR;
	if (r < 0) {
		if (r != -EINTR)
			tier_access_say(a, "%s: cannot count: %s", a->conf.url, strerror(-r));
		return r;
	}
	if (json)
		print_json(&u);
	else
		print_text(&u);
	report_gaps(&u);
	for (size_t i = 0; i < u.list.nr_unlisted; i++)
		u.error = u.error == -EBADMSG ? u.error : u.list.unlisted[i].error;
	return u.error;
}
