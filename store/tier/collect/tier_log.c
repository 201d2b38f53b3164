/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Entries are never deleted. So the last one is found even if the list lags: beginning with any entry, the next number
 * is read until there is none. An entry is appended by putting it as a new object behind the last one, so the process
 * that appends has read all before it.
 */
#include "store/tier/collect/tier_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"

static int report_damaged(const struct tier_log *l, const char *name, const char *what)
{
	return log_errno(-EBADMSG, "tier %s: %s: %s. Checkpoints can be read, but not flushed or collected. Restore this object",
			 tier_where(l->tier), name, what);
}

/* 1; 0: there is none. */
static int get_entry(const struct tier_log *l, uint64_t number, struct tier_log_entry *ret)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_object_name name = tier_log_name(number);
	int r = tier_get_all(l->tier, name.s, sizeof(struct tier_entry_disk), &b);

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = tier_entry_decode(b.data, b.len, ret);
	if (r == -EOPNOTSUPP)
		return log_errno(r, "tier %s: %s: written by a newer version", tier_where(l->tier), name.s);
	if (r == -EBADMSG || r == -EFBIG || (r == 0 && ret->number != number))
		return report_damaged(l, name.s, "is damaged");
	return r < 0 ? r : 1;
}

/* Makes the marks of this entry the current ones. 1; 0: they were deleted. */
static int load_marks(struct tier_log *l, const struct tier_log_entry *e)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_object_name name = tier_marks_name(e->generation, e->marks_id);
	struct tier_marks m;
	uint8_t id[TIER_ID_LEN];
	int r = tier_get_all(l->tier, name.s, TIER_MARKS_MAX, &b);

	if (r == -ENOENT)
		return 0;
	if (r < 0 && r != -EFBIG)
		return r;
	if (r == 0)
		tier_marks_id(b.data, b.len, id);
	if (r < 0 || b.len != e->marks_len || memcmp(id, e->marks_id, sizeof(id)) != 0)
		return report_damaged(l, name.s, "is damaged");
	r = tier_marks_decode(b.data, b.len, &m);
	if (r == -EOPNOTSUPP)
		return log_errno(r, "tier %s: %s: written by a newer version", tier_where(l->tier), name.s);
	if (r == 0 && m.number != e->generation) {
		tier_marks_release(&m);
		r = -EBADMSG;
	}
	if (r < 0)
		return r == -EBADMSG ? report_damaged(l, name.s, "is damaged") : r;
	tier_marks_release(&l->marks);
	buf_release(&l->bytes);
	buf_move(&l->bytes, &b);
	l->marks = m;
	l->generation = e->generation;
	memcpy(l->marks_id, e->marks_id, sizeof(l->marks_id));
	l->marks_len = e->marks_len;
	l->nr_joined = 0; /* a generation has all stores that joined before it */
	return 1;
}

static bool has_joined(const struct tier_log *l, const uint8_t store[TIER_ID_LEN])
{
	for (size_t i = 0; i < l->nr_joined; i++)
		if (memcmp(l->joined[i], store, TIER_ID_LEN) == 0)
			return true;
	return tier_marks_store(&l->marks, store);
}

static int add_joined(struct tier_log *l, const uint8_t store[TIER_ID_LEN])
{
	int r;

	if (has_joined(l, store))
		return 0;
	r = list_grow(&l->joined, l->nr_joined, &l->joined_room, sizeof(*l->joined));
	if (r == 0)
		memcpy(l->joined[l->nr_joined++], store, TIER_ID_LEN);
	return r;
}

int tier_log_follow(struct tier_log *l, void (*applied)(void *userdata), void *userdata)
{
	struct tier_log_entry e;
	int r;

	while ((r = get_entry(l, l->entry + 1, &e)) > 0) {
		bool is_generation = e.generation == e.number;

		r = is_generation ? load_marks(l, &e) : add_joined(l, e.store);
		if (is_generation && r == 0)
			return -ESTALE;
		if (r < 0)
			return r;
		l->entry = e.number;
		if (is_generation && applied)
			applied(userdata);
	}
	return r;
}

/* The largest number that is listed; a list may lack the last ones. 0: none. */
static int list_last(struct tier *t, uint64_t *ret)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	int r = tier_list_all(t, TIER_LOG_PREFIX, &names);
	const char *name;
	uint64_t number;

	*ret = 0;
	for (size_t at = 0; r == 0 && at < names.len; at += strlen(name) + 1) {
		name = (const char *)names.data + at;
		if (tier_log_name_parse(name, &number))
			*ret = MAX(*ret, number);
	}
	return r;
}

int tier_log_read(struct tier *t, struct tier_log *ret)
{
	struct tier_log_entry e;
	uint64_t last, before = 0;
	int r;

	*ret = (struct tier_log){ .tier = t };
	r = list_last(t, &last);
	while (r == 0) {
		r = last > 0 ? get_entry(ret, last, &e) : 0;
		if (r < 0 || (r == 0 && last > 0))
			return r < 0 ? r : report_damaged(ret, tier_log_name(last).s, "is missing");
		if (last > 0 && e.generation > 0) {
			r = load_marks(ret, &e);
			ret->entry = e.generation;
		} else {
			r = 1; /* from the first entry on */
		}
		r = r > 0 ? tier_log_follow(ret, NULL, NULL) : r == 0 ? -ESTALE : r;
		if (r != -ESTALE)
			return r;
		/* Other collections have appended several generations meanwhile: find a later entry. */
		for (before = last; (r = get_entry(ret, last + 1, &e)) > 0;)
			last++;
		if (r == 0 && last == before)
			return report_damaged(ret, tier_log_name(last).s, "its marks are missing");
	}
	return r;
}

void tier_log_release(struct tier_log *l)
{
	tier_marks_release(&l->marks);
	buf_release(&l->bytes);
	free(l->joined);
	*l = (struct tier_log){ 0 };
}

static int append_entry(struct tier_log *l, struct tier_log_entry *e)
{
	struct tier_entry_disk d;
	int r;

	e->number = l->entry + 1;
	if (e->number > TIER_ENTRIES_MAX)
		return log_errno(-EFBIG, "tier %s: its log is full: flush to a new tier", tier_where(l->tier));
	tier_entry_encode(e, &d);
	r = tier_put_new(l->tier, tier_log_name(e->number).s, &d, sizeof(d));
	return r;
}

int tier_log_join(struct tier_log *l, const uint8_t store[TIER_ID_LEN])
{
	struct tier_log_entry e = { 0 };
	int r = 0;

	memcpy(e.store, store, sizeof(e.store));
	while (!has_joined(l, store)) {
		e.generation = l->generation;
		memcpy(e.marks_id, l->marks_id, sizeof(e.marks_id));
		e.marks_len = l->marks_len;
		r = append_entry(l, &e);
		if (r == -EEXIST || r == 0) /* it may be ours, after an attempt whose answer was lost */
			r = tier_log_follow(l, NULL, NULL);
		if (r < 0)
			return r;
	}
	return 0;
}

int tier_log_append_generation(struct tier_log *l, const uint8_t marks_id[TIER_ID_LEN], uint64_t marks_len)
{
	struct tier_log_entry e = { .generation = l->entry + 1, .marks_len = marks_len };

	memcpy(e.marks_id, marks_id, sizeof(e.marks_id));
	return append_entry(l, &e);
}

bool tier_log_keeps(const struct tier_log *l, const uint8_t store[TIER_ID_LEN], uint64_t number)
{
	const struct tier_store_marks *s = tier_marks_store(&l->marks, store);

	return !s || number > s->base || tier_marks_keep(s, number);
}
