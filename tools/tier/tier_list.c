/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/tier/tier_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/seals/tier_heads.h"
#include "store/tier/tier.h"
#include "tools/common/age.h"

#define SCHEMA_VERSION 1
#define OWN ".ckptfs/"

struct tier_store_id tier_store_id(const uint8_t store[TIER_ID_LEN])
{
	struct tier_store_id h;

	for (unsigned i = 0; i < TIER_ID_LEN; i++)
		snprintf(h.s + (size_t)2 * i, 3, "%02x", store[i]);
	return h;
}

const char *tier_checkpoint_path(const struct tier_checkpoint *c)
{
	return c->path[0] ? c->path : ".";
}

const char *tier_unlisted_reason(int error)
{
	return error == -EBADMSG    ? "its manifest is damaged" :
	       error == -EOPNOTSUPP ? "its manifest was written by a newer version; use that version" :
				      strerror(-error);
}

/* --- reading --- */

struct getting {
	struct tier_access *a;
	struct tier_checkpoints *list;
};

static int add_unlisted(struct tier_checkpoints *c, const char *name, int error)
{
	uint8_t store[TIER_ID_LEN];
	uint64_t number;
	int r = list_grow(&c->unlisted, c->nr_unlisted, &c->unlisted_room, sizeof(*c->unlisted));

	if (r < 0 || !tier_manifest_name_parse(name, store, &number))
		return r;
	c->unlisted[c->nr_unlisted++] = (struct tier_unlisted){ tier_manifest_name(store, number), error };
	return 0;
}

static int add_head(void *userdata, const char *name, int r, const struct tier_manifest *m)
{
	struct getting *g = userdata;
	struct tier_checkpoints *list = g->list;
	struct tier_checkpoint c;

	if (r == -ENODATA)
		return 0; /* a fence of a collection */
	if (r < 0)
		return r == -ENOMEM ? r : add_unlisted(list, name, r);
	c = (struct tier_checkpoint){
		.number = m->number,
		.ino = m->ino,
		.sealed_ns = m->sealed_ns,
		.files = m->files,
		.directories = m->directories,
		.bytes = m->bytes,
		.uid = m->uid,
		.name = tier_manifest_name(m->store, m->number),
	};
	memcpy(c.store, m->store, sizeof(c.store));
	memcpy(c.root, m->root, sizeof(c.root));
	r = list_grow(&list->v, list->nr, &list->room, sizeof(*list->v));
	if (r < 0)
		return r;
	c.path = strndup(m->path, m->path_len);
	if (!c.path)
		return -ENOMEM;
	list->v[list->nr++] = c;
	return 0;
}

static bool is_stopping(void *userdata)
{
	const struct getting *g = userdata;

	return atomic_load(&g->a->is_stopping);
}

static int compare_times(const void *a, const void *b)
{
	const struct tier_checkpoint *x = a, *y = b;

	if (x->sealed_ns != y->sealed_ns)
		return x->sealed_ns < y->sealed_ns ? -1 : 1;
	return strcmp(x->name.s, y->name.s);
}

static size_t parent_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

/* By directory and owner, then in the order of the list. */
static int compare_owners(const void *a, const void *b)
{
	const struct tier_checkpoint *x = *(struct tier_checkpoint *const *)a, *y = *(struct tier_checkpoint *const *)b;
	size_t n = parent_len(x->path), m = parent_len(y->path);
	int r = memcmp(x->path, y->path, MIN(n, m));

	if (r == 0)
		r = (n > m) - (n < m);
	if (r == 0)
		r = (x->uid > y->uid) - (x->uid < y->uid);
	return r != 0 ? r : (x > y) - (x < y);
}

static bool has_same_owner(const struct tier_checkpoint *x, const struct tier_checkpoint *y)
{
	size_t n = parent_len(x->path);

	return x->uid == y->uid && n == parent_len(y->path) && memcmp(x->path, y->path, n) == 0;
}

/* Of each owner, as retention counts them. */
static int mark_newest(struct tier_checkpoints *c)
{
	struct tier_checkpoint **by_owner = calloc(MAX(c->nr, (size_t)1), sizeof(struct tier_checkpoint *));

	if (!by_owner)
		return -ENOMEM;
	for (size_t i = 0; i < c->nr; i++)
		by_owner[i] = &c->v[i];
	if (c->nr > 0)
		qsort(by_owner, c->nr, sizeof(struct tier_checkpoint *), compare_owners);
	for (size_t i = 0; i < c->nr; i++)
		by_owner[i]->is_newest = i + 1 == c->nr || !has_same_owner(by_owner[i], by_owner[i + 1]);
	free(by_owner);
	return 0;
}

/*
 * Drops names of other objects, and of manifests that collections have removed. The log is read after the list
 * (store/tier/collect). If it is damaged, which is logged, all manifests are listed: those that are kept can be read.
 */
static int drop_other_names(struct tier_access *a, struct buf *names)
{
	struct tier_log log;
	size_t to = 0, len;
	int r = tier_log_read(a->tier, &log);

	for (size_t at = 0; at < names->len; at += len) {
		uint8_t store[TIER_ID_LEN];
		uint64_t number;

		len = strlen((const char *)names->data + at) + 1;
		if (!tier_manifest_name_parse((const char *)names->data + at, store, &number) ||
		    (r == 0 && !tier_log_keeps(&log, store, number)))
			continue;
		memmove(names->data + to, names->data + at, len);
		to += len;
	}
	names->len = to;
	tier_log_release(&log);
	return r == -EBADMSG || r == -EOPNOTSUPP ? 0 : r;
}

int tier_checkpoints_get(struct tier_access *a, struct tier_checkpoints *ret)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	struct getting g = { a, ret };
	const struct tier_heads_sink to = { add_head, is_stopping, &g };
	int r;

	atomic_store(&a->waits, true);
	r = tier_list_all(a->tier, TIER_SEALED_PREFIX, &names);
	if (r == 0)
		r = drop_other_names(a, &names);
	if (r == 0)
		r = tier_heads_read(a->tier, &names, &to);
	atomic_store(&a->waits, false);
	if (r == 0 && ret->nr > 0)
		qsort(ret->v, ret->nr, sizeof(*ret->v), compare_times);
	if (r == 0)
		r = mark_newest(ret);
	if (r < 0)
		tier_access_say(a, "%s: cannot list checkpoints: %s", a->conf.url, strerror(-r));
	return r;
}

void tier_checkpoints_release(struct tier_checkpoints *c)
{
	for (size_t i = 0; i < c->nr; i++)
		free(c->v[i].path);
	free(c->v);
	free(c->unlisted);
}

/* --- finding --- */

/* Parses the id of a store, 32 hexadecimal digits, and the slash behind it. */
static bool parse_store(const char **s, char ret[2 * TIER_ID_LEN + 1])
{
	size_t len = strspn(*s, "0123456789abcdef");

	if (len != (size_t)2 * TIER_ID_LEN || ((*s)[len] != '/' && (*s)[len] != '\0'))
		return false;
	memcpy(ret, *s, len);
	ret[len] = '\0';
	*s += len + ((*s)[len] == '/');
	return true;
}

/* As in a mounted tier (fs/tiermount/tier_paths.h), the path stays with the owner of its oldest seal. */
static const struct tier_checkpoint *newest_of(const struct tier_checkpoints *c, const char *store, const char *path)
{
	const struct tier_checkpoint *found = NULL;

	for (const struct tier_checkpoint *e = c->v; e < c->v + c->nr; e++)
		if (strcmp(e->path, path) == 0 && (!store || strcmp(tier_store_id(e->store).s, store) == 0) &&
		    (!found || found->uid == e->uid))
			found = e;
	return found;
}

/* *ret_nr: how many stores have a checkpoint with this number. */
static const struct tier_checkpoint *by_number(const struct tier_checkpoints *c, const char *what, size_t *ret_nr)
{
	const struct tier_checkpoint *found = NULL;
	unsigned long long number;

	*ret_nr = 0;
	if (!*what || what[strspn(what, "0123456789")])
		return NULL;
	errno = 0;
	number = strtoull(what, NULL, 10);
	for (size_t i = 0; i < c->nr && errno == 0; i++)
		if (c->v[i].number == number) {
			found = &c->v[i];
			++*ret_nr;
		}
	return found;
}

static const struct tier_checkpoint *by_name(const struct tier_checkpoints *c, const char *path)
{
	char store[2 * TIER_ID_LEN + 1];
	const char *rest;

	if (strncmp(path, OWN, strlen(OWN)) == 0)
		path += strlen(OWN);
	if (strncmp(path, TIER_SEALED_PREFIX, strlen(TIER_SEALED_PREFIX)) == 0)
		for (size_t i = 0; i < c->nr; i++)
			if (strcmp(c->v[i].name.s, path) == 0)
				return &c->v[i];
	if (strncmp(path, "stores/", 7) != 0)
		return NULL;
	rest = path + 7;
	return parse_store(&rest, store) ? newest_of(c, store, rest) : NULL;
}

const struct tier_checkpoint *tier_checkpoints_find(struct tier_access *a, const struct tier_checkpoints *c,
						    const char *what)
{
	_cleanup_(freep) char *path = strdup(what + strspn(what, "/"));
	const struct tier_checkpoint *found;
	size_t nr = 0;

	if (!path) {
		tier_access_say(a, "%s: %s", what, strerror(ENOMEM));
		return NULL;
	}
	for (size_t len = strlen(path); len > 0 && path[len - 1] == '/'; len--)
		path[len - 1] = '\0';
	if (strcmp(path, ".") == 0)
		path[0] = '\0';
	found = newest_of(c, NULL, path);
	if (!found)
		found = by_name(c, path);
	if (!found)
		found = by_number(c, path, &nr);
	if (nr > 1) {
		tier_access_say(a, "%s: %zu stores have a checkpoint with this number; give " OWN "sealed/STORE/NUMBER, "
				   "as in %s%s",
				what, nr, OWN, found->name.s);
		return NULL;
	}
	if (!found)
		tier_access_say(a, "%s: no such checkpoint in %s; %s list %s lists them", what, a->conf.url, a->conf.tool,
				a->conf.url);
	return found;
}

/* --- printing --- */

void tier_checkpoint_json(struct json *j, const struct tier_checkpoint *c)
{
	json_string(j, "path", tier_checkpoint_path(c));
	json_string(j, "store", tier_store_id(c->store).s);
	json_u64(j, "number", c->number);
	json_string(j, "name", c->name.s);
}

static void print_json(const struct tier_access *a, const struct tier_checkpoints *c)
{
	struct json j = json_to_file(stdout);

	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	json_string(&j, "tier", a->conf.url);
	json_open_array(&j, "sealed");
	for (size_t i = 0; i < c->nr; i++) {
		const struct tier_checkpoint *e = &c->v[i];

		json_open(&j, NULL);
		tier_checkpoint_json(&j, e);
		json_u64(&j, "inode", e->ino);
		json_u64(&j, "uid", e->uid);
		json_i64(&j, "sealed_ns", e->sealed_ns);
		json_u64(&j, "age_ns", age_since(e->sealed_ns));
		json_string(&j, "state", "sealed");
		json_string(&j, "durable", "tier");
		json_bool(&j, "newest", e->is_newest);
		json_u64(&j, "files", e->files);
		json_u64(&j, "directories", e->directories);
		json_u64(&j, "bytes", e->bytes);
		json_string(&j, "root", sha256_hex(e->root).s);
		json_close(&j);
	}
	json_close_array(&j);
	json_open_array(&j, "unreadable");
	for (size_t i = 0; i < c->nr_unlisted; i++) {
		json_open(&j, NULL);
		json_string(&j, "name", c->unlisted[i].name.s);
		json_string(&j, "why", tier_unlisted_reason(c->unlisted[i].error));
		json_close(&j);
	}
	json_close_array(&j);
	json_end(&j);
}

static void print_text(const struct tier_access *a, const struct tier_checkpoints *c)
{
	size_t width = strlen("CHECKPOINT");

	if (c->nr == 0) {
		text_printf(stdout, "%s: no sealed checkpoints\n", a->conf.url);
		return;
	}
	for (size_t i = 0; i < c->nr; i++)
		width = MAX(width, text_columns(tier_checkpoint_path(&c->v[i])));
	printf("  %-*s  %6s  %10s  %9s  %5s  %s\n", (int)width, "CHECKPOINT", "NUMBER", "SIZE", "FILES", "AGE", "STORE");
	for (size_t i = 0; i < c->nr; i++) {
		const struct tier_checkpoint *e = &c->v[i];
		size_t columns;

		fputs(e->is_newest ? "* " : "  ", stdout);
		columns = text_print(stdout, tier_checkpoint_path(e));
		printf("%*s  %6" PRIu64 "  %10s  %9" PRIu64 "  %5s  %s\n", (int)(width - columns), "", e->number,
		       human_size(e->bytes).s, e->files, human_age(age_since(e->sealed_ns)).s, tier_store_id(e->store).s);
	}
}

int tier_list(struct tier_access *a, bool json)
{
	_cleanup_(tier_checkpoints_release) struct tier_checkpoints c = { 0 };
	int r = tier_checkpoints_get(a, &c);

	if (r < 0 || atomic_load(&a->is_stopping))
		return r < 0 ? r : -EINTR;
	if (json)
		print_json(a, &c);
	else
		print_text(a, &c);
	for (size_t i = 0; i < c.nr_unlisted; i++) {
		tier_access_say(a, "%s: %s: not listed: %s", a->conf.url, c.unlisted[i].name.s,
				tier_unlisted_reason(c.unlisted[i].error));
		r = r == 0 || c.unlisted[i].error == -EBADMSG ? c.unlisted[i].error : r;
	}
	return r;
}
