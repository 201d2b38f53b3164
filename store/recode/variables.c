/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/recode/variables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/engine_state.h"

#define NOTE "variables"

struct variables {
	struct mutex lock; /* leaf */
	struct variable_notes notes GUARDED_BY(lock); /* same as in the view */
};

struct variables *variables_new(void)
{
	struct variables *v = calloc(1, sizeof(*v));

	if (v)
		mutex_init(&v->lock);
	return v;
}

void variables_free(struct variables *v)
{
	if (!v)
		return;
	variable_notes_release(&v->notes);
	mutex_release(&v->lock);
	free(v);
}

/* Index of the key, or where to insert it. */
static size_t find_key(const struct variable_notes *n, const char *key, bool *ret_is_there)
{
	size_t low = 0, high = n->nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(n->v[middle].key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_is_there = low < n->nr && strcmp(n->v[low].key, key) == 0;
	return low;
}

static void drop_oldest(struct variable_notes *n)
{
	size_t oldest = 0;

	for (size_t i = 1; i < n->nr; i++)
		if (n->v[i].last_ns < n->v[oldest].last_ns)
			oldest = i;
	free(n->v[oldest].key);
	memmove(&n->v[oldest], &n->v[oldest + 1], (--n->nr - oldest) * sizeof(*n->v));
}

/* Adds to the totals of the key; coder and order are those of the last run. -ENOMEM. */
static int variable_notes_add(struct variable_notes *n, const struct variable_note *more)
{
	struct variable_note *v;
	bool is_there;
	size_t at;
	char *key;

	if (!n->v)
		n->v = calloc(VARIABLES_MAX + 1, sizeof(*n->v));
	if (!n->v)
		return -ENOMEM;
	at = find_key(n, more->key, &is_there);
	if (!is_there) {
		key = strdup(more->key);
		if (!key)
			return -ENOMEM;
		memmove(&n->v[at + 1], &n->v[at], (n->nr++ - at) * sizeof(*n->v));
		n->v[at] = (struct variable_note){ .key = key };
	}
	v = &n->v[at];
	v->coder = more->coder;
	v->turns = more->turns;
	v->last_ns = more->last_ns;
	v->coded += more->coded;
	v->before += more->before;
	v->after += more->after;
	v->code_ns += more->code_ns;
	if (n->nr > VARIABLES_MAX)
		drop_oldest(n);
	return 0;
}

static int load(struct engine *e, struct variable_notes *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key key = ns_key_meta(NOTE);
	int r = db_get(e->db, DB_VIEW, key.b, key.len, &value);

	if (r <= 0)
		return r;
	r = variable_notes_decode(value.data, value.len, ret);
	if (r == -EBADMSG) {
		log_warning("index: the note about variables cannot be decoded: starting an empty one");
		r = 0;
	}
	return r;
}

static int save(struct engine *e, const struct variable_notes *n)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r;

	variable_notes_encode(n, &value);
	engine_tx_put(&tx, ns_key_meta(NOTE), value.data, value.len);
	r = buf_error(&value);
	return r < 0 ? r : engine_tx_apply(e, &tx);
}

/* Installs the new statistics; takes `n`. */
static void install_notes(struct engine *e, struct variable_notes *n)
{
	struct variable_notes old;

	mutex_lock(&e->variables->lock);
	old = e->variables->notes;
	e->variables->notes = *n;
	mutex_unlock(&e->variables->lock);
	variable_notes_release(&old);
	*n = (struct variable_notes){ 0 };
}

int variables_load(struct engine *e)
{
	struct variable_notes n = { 0 };
	int r = load(e, &n);

	if (r == 0)
		install_notes(e, &n);
	return r;
}

int variables_remember(struct engine *e, const struct compact_conf *conf)
{
	_cleanup_(variable_notes_release) struct variable_notes n = { 0 };
	bool any = false;
	int r = load(e, &n);

	for (size_t i = 0; i < conf->nr_variables && r == 0; i++) {
		const struct compact_result *res = &conf->result[i];
		struct variable_note v = {
			.key = (char *)conf->variable[i].key,
			.coder = res->coder,
			.turns = res->turns,
			.coded = res->coded,
			.before = res->before,
			.after = res->after,
			.code_ns = res->code_ns,
			.last_ns = now_ns(),
		};

		if (!v.key || v.coded == 0)
			continue;
		any = true;
		r = variable_notes_add(&n, &v);
	}
	if (r == 0 && any)
		r = save(e, &n);
	if (r == 0 && any)
		install_notes(e, &n);
	return r;
}

static int next_locked(const struct variable_notes *n, const char *after, struct variable_note *ret)
{
	bool is_there = false;
	size_t at = after ? find_key(n, after, &is_there) + is_there : 0;
	char *key;

	if (at >= n->nr)
		return 0;
	key = strdup(n->v[at].key);
	if (!key)
		return -ENOMEM;
	*ret = n->v[at];
	ret->key = key;
	return 1;
}

int engine_variable_next(struct engine *e, const char *after, struct variable_note *ret)
{
	int r;

	mutex_lock(&e->variables->lock);
	r = next_locked(&e->variables->notes, after, ret);
	mutex_unlock(&e->variables->lock);
	return r;
}
