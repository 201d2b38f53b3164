/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/tier/tier_verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "store/tier/seals/tier_root.h"
#include "tools/tier/tier_content.h"
#include "tools/tier/tier_verified.h"

#define SCHEMA_VERSION 1
#define PACK UINT32_MAX /* in place of an inode */

struct damage {
	uint32_t inode;
	struct tier_fault fault;
};

struct verifying {
	struct tier_access *a;
	bool json, quiet;
	struct json out;
	struct tier_verified verified;
	/* Of the current checkpoint: */
	struct tier_opened o;
	struct mutex lock; /* a leaf */
	struct damage *damages GUARDED_BY(lock);
	size_t nr_damages GUARDED_BY(lock), damages_room GUARDED_BY(lock);
	bool *is_damaged GUARDED_BY(lock); /* by inode */
	int error GUARDED_BY(lock); /* it cannot be read */
	struct tier_fault fault GUARDED_BY(lock);
	uint64_t bytes; /* read */
};

/* --- what is found --- */

static int add_damage(struct verifying *v, uint32_t inode, const struct tier_fault *fault) REQUIRES(v->lock)
{
	int r = list_grow(&v->damages, v->nr_damages, &v->damages_room, sizeof(*v->damages));

	if (r == 0)
		v->damages[v->nr_damages++] = (struct damage){ inode, *fault };
	return r;
}

static int on_failed(void *userdata, uint32_t inode, int r, const struct tier_fault *fault)
{
	struct verifying *v = userdata;

	mutex_lock(&v->lock);
	if (r != -EBADMSG && v->error == 0) {
		v->error = r;
		v->fault = *fault;
	} else if (r == -EBADMSG) {
		r = v->is_damaged[inode] ? 0 : add_damage(v, inode, fault);
		v->is_damaged[inode] = true;
	}
	mutex_unlock(&v->lock);
	return r;
}

static bool is_known(void *userdata, const struct tier_run *run)
{
	struct verifying *v = userdata;
	struct tier_footer f;

	return tier_manifest_pack(v->o.m, run->pack - 1, &f) == 0 && tier_verified_has(&v->verified, &f, run);
}

static void on_verified(void *userdata, const struct tier_run *run)
{
	struct verifying *v = userdata;
	struct tier_footer f;

	if (tier_manifest_pack(v->o.m, run->pack - 1, &f) == 0)
		tier_verified_add(&v->verified, &f, run);
}

/* Pack number i of the manifest. */
static int verify_tables(void *userdata, size_t i)
{
	struct verifying *v = userdata;
	const struct tier_waiter w = tier_access_waiter(v->a);
	const struct tier_tables *tables;
	struct tier_footer f;
	struct tier_fault fault;
	int r = tier_source_tables(v->o.source, (uint32_t)i, &w, &tables);

	if (r == 0)
		tier_source_tables_put(v->o.source, (uint32_t)i);
	if (r == 0 || r == -EINTR || tier_manifest_pack(v->o.m, (uint32_t)i, &f) < 0)
		return r;
	fault = (struct tier_fault){ tier_pack_name(f.id), r == -ENOENT ? "is missing" : r == -EBADMSG ? "is damaged" :
								       "cannot be read" };
	mutex_lock(&v->lock);
	if (r == -ENOENT || r == -EBADMSG) {
		r = add_damage(v, PACK, &fault);
	} else if (v->error == 0) {
		v->error = r;
		v->fault = fault;
	}
	mutex_unlock(&v->lock);
	return r;
}

/* 0; -EBADMSG: its root differs. */
static int verify_root(struct verifying *v)
{
	const struct tier_waiter w = tier_access_waiter(v->a);
	uint8_t root[SHA256_LEN];
	int r = tier_root(v->o.tree, v->o.source, v->o.m->root, &w, root);

	return r < 0 ? r : memcmp(root, v->o.m->root, sizeof(root)) != 0 ? -EBADMSG : 0;
}

/* --- output --- */

static int compare_damages(const void *a, const void *b)
{
	const struct damage *x = a, *y = b;

	if (x->inode != y->inode)
		return x->inode == PACK ? -1 : y->inode == PACK ? 1 : x->inode < y->inode ? -1 : 1;
	return strcmp(x->fault.object.s, y->fault.object.s);
}

static void show_damages(struct verifying *v)
{
	for (size_t i = 0; i < v->nr_damages; i++) {
		const struct damage *d = &v->damages[i];
		_cleanup_(buf_release) struct buf path = BUF_EMPTY;

		if (d->inode != PACK)
			tier_tree_path(v->o.tree, d->inode, &path);
		if (v->json) {
			json_open(&v->out, NULL);
			json_string(&v->out, "path", path.len > 0 ? (const char *)path.data : NULL);
			json_string(&v->out, "object", d->fault.object.s);
			json_string(&v->out, "why", d->fault.what);
			json_close(&v->out);
		} else if (path.len > 0) {
			text_printf(stdout, "%s/%s: %s %s\n", tier_checkpoint_path(v->o.c), (const char *)path.data,
				    d->fault.object.s, d->fault.what);
		} else {
			text_printf(stdout, "%s: %s %s\n", tier_checkpoint_path(v->o.c), d->fault.object.s, d->fault.what);
		}
	}
}

static const char *state_of(int r)
{
	return r == 0 ? "valid" : r == -EBADMSG ? "damaged" : r == -ENOENT ? "missing" : "unreadable";
}

/* r: 0; -EBADMSG: damaged; -ENOENT: gone; others: it cannot be read. `why` NULL: see the damages. */
static void show_result(struct verifying *v, const struct tier_checkpoint *c, int r, const char *why)
{
	struct json *j = &v->out;
	char text[200];

	if (!why && r < 0) {
		snprintf(text, sizeof(text), "%s", v->error < 0 && v->fault.object.s[0] ? v->fault.object.s : "");
		if (v->error < 0)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s: %s", text[0] ? " " : "",
				 v->fault.what ? v->fault.what : "it cannot be read", strerror(-v->error));
		else
			snprintf(text, sizeof(text), "%s", human_nr(v->nr_damages, "object or file").s);
		why = text;
	}
	tier_access_begin_output(v->a);
	if (v->nr_damages > 0)
		qsort(v->damages, v->nr_damages, sizeof(*v->damages), compare_damages);
	if (v->json) {
		json_open(j, NULL);
		tier_checkpoint_json(j, c);
		json_string(j, "state", state_of(r));
		json_u64(j, "read_bytes", v->bytes);
		json_u64(j, "files", c->files);
		json_u64(j, "bytes", c->bytes);
		json_string(j, "root", sha256_hex(c->root).s);
		json_string(j, "why", why);
		json_open_array(j, "damaged");
		show_damages(v);
		json_close_array(j);
		json_close(j);
	} else {
		show_damages(v);
		if (r < 0 || !v->quiet)
			text_printf(stdout, "%s, number %" PRIu64 ": %s", tier_checkpoint_path(c), c->number, state_of(r));
		if (r < 0)
			text_printf(stdout, ": %s\n", why);
		else if (!v->quiet)
			printf(": %s, %s, %s read, root %s\n", human_nr(c->files, "file").s, human_size(c->bytes).s,
			       human_size(v->bytes).s, sha256_hex(c->root).s);
	}
	fflush(stdout);
	tier_access_end_output(v->a);
}

/* --- one checkpoint --- */

static int verify_opened(struct verifying *v)
{
	const struct tier_content content = {
		.is_known = is_known, .verified = on_verified, .failed = on_failed, .userdata = v
	};
	const char *why = NULL;
	int r, root = 0;

	v->is_damaged = calloc(v->o.tree->nr_inodes, sizeof(bool));
	if (!v->is_damaged)
		return -ENOMEM;
	r = tier_access_each(v->a, v->o.m->nr_packs, verify_tables, v);
	if (r == 0 && v->nr_damages == 0)
		root = verify_root(v);
	if (root == -EBADMSG)
		why = "its root differs from the sealed root";
	else if (root < 0)
		r = root;
	if (r == 0)
		r = tier_content_read(&v->o, &content, &v->bytes);
	if (r == -EINTR)
		return r;
	if (r == 0 && (root < 0 || v->nr_damages > 0))
		r = -EBADMSG;
	if (r < 0 && r != -EBADMSG && v->error == 0)
		v->error = r;
	show_result(v, v->o.c, v->error < 0 ? v->error : r, v->error < 0 ? NULL : why);
	return v->error < 0 ? v->error : r;
}

static int verify_one(struct verifying *v, const struct tier_checkpoint *c)
{
	int r;

	v->error = 0;
	v->fault = (struct tier_fault){ 0 };
	v->bytes = 0;
	v->nr_damages = 0;
	r = tier_opened_open(v->a, c, &v->o);
	if (r < 0) {
		show_result(v, c, r,
			    r == -EBADMSG ? "its manifest, key or catalog is damaged" :
			    r == -ENOENT  ? "its manifest was removed" :
					    strerror(-r));
		return r;
	}
	r = verify_opened(v);
	free(TAKE(v->is_damaged));
	tier_opened_close(&v->o);
	return r;
}

/* Of two results, damage takes precedence. */
static int worse(int r, int one)
{
	return one == -EBADMSG || r == 0 ? one : r;
}

static int show_unlisted(struct verifying *v, const struct tier_checkpoints *list, int r)
{
	for (size_t i = 0; i < list->nr_unlisted; i++) {
		const struct tier_unlisted *u = &list->unlisted[i];

		tier_access_begin_output(v->a);
		if (v->json) {
			json_open(&v->out, NULL);
			json_string(&v->out, "name", u->name.s);
			json_string(&v->out, "state", state_of(u->error));
			json_string(&v->out, "why", tier_unlisted_reason(u->error));
			json_close(&v->out);
		} else {
			text_printf(stdout, "%s: %s: %s\n", u->name.s, state_of(u->error), tier_unlisted_reason(u->error));
		}
		tier_access_end_output(v->a);
		r = worse(r, u->error);
	}
	return r;
}

static int verify_all(struct verifying *v, const struct tier_checkpoint *const *all, size_t nr)
{
	uint64_t done = 0, sum = 0;
	int r = 0;

	for (size_t i = 0; i < nr; i++)
		sum += all[i]->bytes;
	atomic_store(&v->a->what, "verifying");
	atomic_store(&v->a->all, sum);
	for (size_t i = 0; i < nr; i++) {
		int one = verify_one(v, all[i]);

		done += all[i]->bytes;
		atomic_store(&v->a->done, done);
		if (one == -EINTR || one == -ENOMEM)
			return one;
		r = worse(r, one);
	}
	return r;
}

static int choose(struct tier_access *a, const struct tier_checkpoints *list, char *names[], int nr,
		  const struct tier_checkpoint **ret)
{
	for (size_t i = 0; nr == 0 && i < list->nr; i++)
		ret[i] = &list->v[i];
	for (int i = 0; i < nr; i++) {
		ret[i] = tier_checkpoints_find(a, list, names[i]);
		if (!ret[i])
			return -ESRCH; /* was reported */
	}
	return 0;
}

int tier_verify(struct tier_access *a, char *names[], int nr, bool json, bool quiet)
{
	_cleanup_(tier_checkpoints_release) struct tier_checkpoints list = { 0 };
	struct verifying v = { .a = a, .json = json, .quiet = quiet, .out = json_to_file(stdout) };
	const struct tier_checkpoint **all;
	int r = tier_checkpoints_get(a, &list);
	size_t nr_all = nr > 0 ? (size_t)nr : list.nr;

	if (r < 0)
		return r;
	all = calloc(MAX(nr_all, (size_t)1), sizeof(*all));
	r = all ? choose(a, &list, names, nr, all) : -ENOMEM;
	if (r < 0) {
		free(all);
		return r;
	}
	tier_verified_init(&v.verified);
	mutex_init(&v.lock);
	if (json) {
		json_open(&v.out, NULL);
		json_u64(&v.out, "schema_version", SCHEMA_VERSION);
		json_string(&v.out, "tier", a->conf.url);
		json_open_array(&v.out, "checkpoints");
	}
	r = verify_all(&v, all, nr_all);
	if (nr == 0 && r != -EINTR)
		r = show_unlisted(&v, &list, r);
	if (json) {
		json_close_array(&v.out);
		json_bool(&v.out, "complete", r == 0 || r == -EBADMSG);
		json_end(&v.out);
	}
	tier_verified_release(&v.verified);
	mutex_release(&v.lock);
	free(v.damages);
	free(all);
	return r;
}
