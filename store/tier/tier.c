/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "base/util.h"

struct tier_queue {
	struct tier *tier; /* constant */
	unsigned nr_in_flight; /* of the owner */
	struct mutex lock; /* leaf */
	struct cond completed;
	struct tier_request *first GUARDED_BY(lock), **end GUARDED_BY(lock); /* completed, oldest first */
};

/* --- names --- */

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
	       c == '.';
}

/* Are the first `len` bytes a name? */
static bool is_name(const char *s, size_t len)
{
	size_t part = 0;

	if (len == 0 || len > TIER_NAME_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] == '/' && part > 0) {
			part = 0;
			continue;
		}
		if (!is_name_char(s[i]) || (part == 0 && s[i] == '.') || ++part > TIER_PART_MAX)
			return false;
	}
	return part > 0;
}

bool tier_name_is_valid(const char *name)
{
	return is_name(name, strlen(name));
}

bool tier_prefix_is_valid(const char *prefix)
{
	size_t len = strlen(prefix);

	return len == 0 || (prefix[len - 1] == '/' && is_name(prefix, len - 1));
}

/* --- queues --- */

int tier_queue_new(struct tier *t, struct tier_queue **ret)
{
	struct tier_queue *u = calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	u->tier = t;
	u->end = &u->first;
	mutex_init(&u->lock);
	cond_init(&u->completed);
	*ret = u;
	return 0;
}

void tier_queue_free(struct tier_queue *u)
{
	if (!u)
		return;
	while (tier_next(u))
		;
	cond_release(&u->completed);
	mutex_release(&u->lock);
	free(u);
}

void tier_queue_freep(struct tier_queue **u)
{
	tier_queue_free(*u);
}

void tier_start(struct tier_queue *u, struct tier_request *q)
{
	q->queue = u;
	q->next = NULL;
	q->result = -EINPROGRESS;
	q->got = 0;
	q->size = 0;
	q->more = false;
	u->nr_in_flight++;
	if (q->op == TIER_LIST ? tier_prefix_is_valid(q->name) : tier_name_is_valid(q->name))
		u->tier->backend->start(u->tier, q);
	else
		tier_done(q, -EINVAL);
}

void tier_done(struct tier_request *q, int result)
{
	struct tier_queue *u = q->queue;

	q->result = result;
	q->next = NULL; /* a back end may have had it in a list */
	mutex_lock(&u->lock);
	*u->end = q;
	u->end = &q->next;
	cond_signal(&u->completed); /* inside the lock: the owner may free the queue as soon as it is released */
	mutex_unlock(&u->lock);
}

static struct tier_request *take_first(struct tier_queue *u) REQUIRES(u->lock)
{
	struct tier_request *q = u->first;

	if (!q)
		return NULL;
	u->first = q->next;
	if (!u->first)
		u->end = &u->first;
	u->nr_in_flight--;
	return q;
}

struct tier_request *tier_next(struct tier_queue *u)
{
	struct tier_request *q;

	if (u->nr_in_flight == 0)
		return NULL;
	mutex_lock(&u->lock);
	while (!u->first && !u->tier->backend->drive)
		cond_wait(&u->completed, &u->lock);
	while (!u->first) {
		mutex_unlock(&u->lock);
		u->tier->backend->drive(u->tier);
		mutex_lock(&u->lock);
	}
	q = take_first(u);
	mutex_unlock(&u->lock);
	return q;
}

struct tier_request *tier_completed(struct tier_queue *u)
{
	struct tier_request *q;

	mutex_lock(&u->lock);
	q = take_first(u);
	mutex_unlock(&u->lock);
	return q;
}

unsigned tier_in_flight(const struct tier_queue *u)
{
	return u->nr_in_flight;
}

/* --- one at a time --- */

int tier_call(struct tier *t, struct tier_request *q)
{
	_cleanup_(tier_queue_freep) struct tier_queue *u = NULL;
	int r = tier_queue_new(t, &u);

	if (r < 0)
		return r;
	tier_start(u, q);
	tier_next(u);
	return q->result;
}

int tier_put_new(struct tier *t, const char *name, const void *data, size_t len)
{
	return tier_call(t, &(struct tier_request){ .op = TIER_PUT_NEW, .name = name, .data = data, .len = len });
}

int tier_get(struct tier *t, const char *name, uint64_t off, void *buf, size_t len)
{
	struct tier_request q = { .op = TIER_GET, .name = name, .off = off, .buf = buf, .len = len };
	int r = tier_call(t, &q);

	return r < 0 ? r : q.got < len ? -EBADMSG : 0;
}

#define FIRST_GET ((size_t)64 << 10)

int tier_get_all(struct tier *t, const char *name, size_t max, struct buf *ret)
{
	struct tier_request q = { .op = TIER_GET, .name = name };
	size_t from = ret->len;
	int r;

	do {
		q.off = ret->len - from;
		q.len = q.off == 0 ? MIN(max, FIRST_GET) : (size_t)(q.size - q.off);
		r = buf_reserve(ret, q.len);
		if (r < 0)
			break;
		q.buf = ret->data + ret->len;
		r = tier_call(t, &q);
		if (r == 0 && q.size > max)
			r = -EFBIG;
		if (r == 0 && q.got == 0 && q.size > q.off)
			r = -EBADMSG;
		ret->len += r == 0 ? q.got : 0;
	} while (r == 0 && ret->len - from < q.size);
	if (r < 0)
		ret->len = from;
	return r;
}

int tier_list_all(struct tier *t, const char *prefix, struct buf *ret)
{
	struct tier_request q = { .op = TIER_LIST, .name = prefix };
	char after[TIER_NAME_MAX + 1];
	int r;

	do {
		r = tier_call(t, &q);
		if (r < 0 || q.names.len == 0)
			break;
		buf_add(ret, q.names.data, q.names.len);
		r = buf_error(ret);
		if (q.more) {
			size_t at = q.names.len - 1;

			while (at > 0 && q.names.data[at - 1] != '\0')
				at--;
			assert(q.names.len - at <= sizeof(after)); /* back ends return valid names only */
			memcpy(after, q.names.data + at, q.names.len - at);
			q.after = after;
		}
		buf_clear(&q.names);
	} while (r == 0 && q.more);
	buf_release(&q.names);
	return r;
}

/* --- back ends --- */

int tier_sweep(struct tier *t, const char *prefix)
{
	return t->backend->sweep ? t->backend->sweep(t, prefix) : 0;
}

void tier_close(struct tier *t)
{
	if (t)
		t->backend->close(t);
}

void tier_closep(struct tier **t)
{
	tier_close(*t);
}

uint64_t tier_repeated_bytes(const struct tier *t)
{
	return atomic_load(&t->repeated_bytes);
}

const char *tier_where(const struct tier *t)
{
	return t->where;
}
