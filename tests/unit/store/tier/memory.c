/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/tier/memory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_format.h"

#define PENDING_MAX 256u

struct object {
	char name[TIER_NAME_MAX + 1];
	uint8_t *data;
	size_t len;
	bool is_unread; /* no get has found it yet */
	bool is_durable; /* a put, or a put new that found it, has returned */
	unsigned round; /* of requests in flight together, in which it was put */
};

struct memory {
	struct tier tier;
	struct memory_faults faults;
	uint64_t random, nr_requests;
	unsigned round;
	bool is_dead;
	struct object *v;
	size_t nr, room;
	char last[TIER_NAME_MAX + 1]; /* put last */
	struct tier_request *pending[PENDING_MAX];
	unsigned nr_pending, in_flight_max;
	uint64_t got_bytes;
};

static uint64_t draw(struct memory *m)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return m->random;
}

/* --- objects --- */

static struct object *find(const struct memory *m, const char *name, size_t *ret_at)
{
	size_t i = 0;

	while (i < m->nr && strcmp(m->v[i].name, name) < 0)
		i++;
	if (ret_at)
		*ret_at = i;
	return i < m->nr && strcmp(m->v[i].name, name) == 0 ? &m->v[i] : NULL;
}

static int put(struct memory *m, const struct tier_request *q)
{
	size_t at;
	struct object *o = find(m, q->name, &at);

	if (o && q->op == TIER_PUT_NEW && !m->faults.puts_are_not_conditional)
		return m->faults.races_have_two_winners && o->round == m->round ? 0 : -EEXIST;
	if (!o) {
		assert_int_equal(list_grow(&m->v, m->nr, &m->room, sizeof(*m->v)), 0);
		o = &m->v[at];
		memmove(o + 1, o, (m->nr++ - at) * sizeof(*o));
		*o = (struct object){ 0 };
		strcpy(o->name, q->name);
	}
	free(o->data);
	o->len = q->len;
	o->data = malloc(MAX(q->len, (size_t)1));
	assert_non_null(o->data);
	if (q->len > 0)
		memcpy(o->data, q->data, q->len);
	o->is_unread = true;
	o->round = m->round;
	strcpy(m->last, q->name);
	return 0;
}

static int get(struct memory *m, struct tier_request *q)
{
	struct object *o = find(m, q->name, NULL);
	uint64_t off = m->faults.ranges_are_ignored ? 0 : q->off;

	if (!o)
		return -ENOENT;
	if (o->is_unread && m->faults.new_objects_are_late) {
		o->is_unread = false;
		return -ENOENT;
	}
	o->is_unread = false;
	q->size = o->len;
	q->got = off < o->len ? MIN(q->len, (size_t)(o->len - off)) : 0;
	if (m->faults.ranges_are_cut && q->got > 1)
		q->got--;
	if (q->got > 0)
		memcpy(q->buf, o->data + off, q->got);
	m->got_bytes += q->got;
	return 0;
}

static int list(struct memory *m, struct tier_request *q)
{
	size_t nr = 0, page = m->faults.page ? m->faults.page : 3;

	for (size_t i = 0; i < m->nr; i++) {
		const char *name = m->v[i].name;

		if (strncmp(name, q->name, strlen(q->name)) != 0 || (q->after && strcmp(name, q->after) <= 0))
			continue;
		if (m->faults.lists_are_late && strcmp(name, m->last) == 0)
			continue;
		if (nr++ == page) {
			q->more = true;
			break;
		}
		buf_add(&q->names, name, strlen(name) + 1);
	}
	return buf_error(&q->names);
}

static int remove_object(struct memory *m, const struct tier_request *q)
{
	size_t at;
	struct object *o = find(m, q->name, &at);

	if (!o || m->faults.deletes_are_ignored)
		return 0;
	free(o->data);
	memmove(o, o + 1, (--m->nr - at) * sizeof(*o));
	return 0;
}

/* --- requests --- */

static int apply(struct memory *m, struct tier_request *q)
{
	switch (q->op) {
	case TIER_PUT_NEW:
	case TIER_PUT:
		return put(m, q);
	case TIER_GET:
		return get(m, q);
	case TIER_LIST:
		return list(m, q);
	case TIER_DELETE:
		return remove_object(m, q);
	}
	return -EINVAL;
}

/* A put returns 0, or a put new -EEXIST: the object must survive a power failure. */
static void note_durable(struct memory *m, const struct tier_request *q, int r)
{
	struct object *o = q->op == TIER_PUT || q->op == TIER_PUT_NEW ? find(m, q->name, NULL) : NULL;

	if (o && (r == 0 || r == -EEXIST))
		o->is_durable = true;
}

static int run(struct memory *m, struct tier_request *q)
{
	const struct memory_faults *f = &m->faults;
	uint64_t n = ++m->nr_requests;
	int r;

	if (m->is_dead || n == f->kill_at) {
		bool applies = m->is_dead ? draw(m) % 2 == 0 : f->kill_after;

		if (applies)
			apply(m, q);
		m->is_dead = true;
		return -ECANCELED;
	}
	if (n == f->fail_at && !f->fail_after)
		return f->fail_with;
	r = apply(m, q);
	r = n == f->fail_at ? f->fail_with : r;
	note_durable(m, q, r);
	return r;
}

static void run_one(struct memory *m)
{
	unsigned i = (unsigned)(draw(m) % m->nr_pending);
	struct tier_request *q = m->pending[i];

	m->pending[i] = m->pending[--m->nr_pending];
	tier_done(q, run(m, q));
	if (m->nr_pending == 0)
		m->round++;
}

static void start(struct tier *t, struct tier_request *q)
{
	struct memory *m = container_of(t, struct memory, tier);

	assert_true(m->nr_pending < PENDING_MAX);
	if (m->is_dead) /* what a process does after its end has no effect */
		tier_done(q, -ECANCELED);
	else
		m->pending[m->nr_pending++] = q;
	m->in_flight_max = MAX(m->in_flight_max, m->nr_pending);
}

static void drive(struct tier *t)
{
	struct memory *m = container_of(t, struct memory, tier);

	assert_true(m->nr_pending > 0);
	run_one(m);
}

static void end(struct tier *t)
{
	assert_int_equal(container_of(t, struct memory, tier)->nr_pending, 0);
}

static const struct tier_backend backend = { .start = start, .drive = drive, .close = end };

struct tier *memory_open(struct memory *m, const struct memory_faults *faults)
{
	m->faults = *faults;
	m->random = faults->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	m->nr_requests = 0;
	m->in_flight_max = 0;
	m->got_bytes = 0;
	m->is_dead = false;
	m->tier = (struct tier){ .backend = &backend, .where = "memory" };
	return &m->tier;
}

uint64_t memory_nr_requests(const struct memory *m)
{
	return m->nr_requests;
}

uint64_t memory_got_bytes(const struct memory *m)
{
	return m->got_bytes;
}

unsigned memory_in_flight_max(const struct memory *m)
{
	return m->in_flight_max;
}

struct memory *memory_new(void)
{
	struct memory *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	return m;
}

void memory_free(struct memory *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->nr; i++)
		free(m->v[i].data);
	free(m->v);
	free(m);
}

/* --- looking at it --- */

size_t memory_nr(const struct memory *m)
{
	return m->nr;
}

const char *memory_name(const struct memory *m, size_t i)
{
	return m->v[i].name;
}

const void *memory_data(const struct memory *m, size_t i, size_t *ret_len)
{
	*ret_len = m->v[i].len;
	return m->v[i].data;
}

const void *memory_find(const struct memory *m, const char *name, size_t *ret_len)
{
	const struct object *o = find(m, name, NULL);

	if (!o)
		return NULL;
	*ret_len = o->len;
	return o->data;
}

void memory_lose_power(struct memory *m)
{
	size_t nr = 0;

	for (size_t i = 0; i < m->nr; i++)
		if (m->v[i].is_durable)
			m->v[nr++] = m->v[i];
		else
			free(m->v[i].data);
	m->nr = nr;
}

void memory_damage(struct memory *m, const char *name, size_t at)
{
	const struct object *o = find(m, name, NULL);

	assert_non_null(o);
	assert_true(at < o->len);
	o->data[at] ^= 1;
}

void memory_set_version(struct memory *m, const char *name, uint32_t version)
{
	const struct object *o = find(m, name, NULL);
	struct tier_manifest_disk *d;

	assert_non_null(o);
	assert_true(o->len >= sizeof(*d));
	d = (struct tier_manifest_disk *)o->data;
	d->version = le32_put(version);
	d->crc32c = le32_put(crc32c(d, offsetof(struct tier_manifest_disk, crc32c)));
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value && value[0] ? strtoull(value, NULL, 10) : otherwise;
}

uint64_t kill_states_wanted(uint64_t otherwise)
{
	return setting("TIER_KILL_STATES", otherwise);
}

uint64_t kill_first_seed(void)
{
	return setting("TEST_SEED", 1);
}
