/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/background/flush_note.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "index/namespace_table.h"
#include "store/engine.h"

#define NOTE "tier"
#define VERSION 1u

void flush_note_encode(const struct flush_note *n, struct buf *ret)
{
	buf_add_u8(ret, VERSION);
	buf_add_varint(ret, n->number);
	buf_add_varint(ret, n->nr_seals);
	for (unsigned i = 0; i < n->nr_seals; i++) {
		buf_add_varint(ret, n->seals[i].ino);
		buf_add_varint(ret, (uint64_t)n->seals[i].sealed_ns);
	}
	buf_add(ret, n->url, strlen(n->url));
}

int flush_note_decode(const void *p, size_t len, struct flush_note *ret)
{
	struct cursor in = cursor_of(p, len);
	struct flush_note n = { .url = "" };
	uint8_t version = cursor_u8(&in);
	uint64_t nr_seals;
	size_t url_len;

	n.number = cursor_varint(&in);
	nr_seals = cursor_varint(&in);
	if (in.failed || version != VERSION || n.number == 0 || nr_seals == 0 || nr_seals > FLUSH_NOTE_SEALS_MAX)
		return -EBADMSG;
	for (n.nr_seals = 0; n.nr_seals < nr_seals; n.nr_seals++) {
		struct flush_note_seal *s = &n.seals[n.nr_seals];

		s->ino = cursor_varint(&in);
		s->sealed_ns = (int64_t)cursor_varint(&in);
		if (in.failed || s->ino == 0)
			return -EBADMSG;
	}
	url_len = (size_t)(in.end - in.p);
	if (url_len > FLUSH_NOTE_URL_MAX || memchr(in.p, '\0', url_len))
		return -EBADMSG;
	memcpy(n.url, in.p, url_len);
	*ret = n;
	return 0;
}

int flush_note_load(struct engine *e, struct flush_note *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = ns_get_meta(engine_db(e), NOTE, &value);

	if (r <= 0)
		return r;
	r = flush_note_decode(value.data, value.len, ret);
	if (r == -EBADMSG) {
		log_warning(
			"index: note about the last manifest in the tier: malformed; comparing the manifest with the seals");
		return 0;
	}
	return r < 0 ? r : 1;
}

int flush_note_save(struct engine *e, const struct flush_note *n)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r;

	flush_note_encode(n, &value);
	r = buf_error(&value);
	if (r < 0)
		return r;
	engine_tx_put(&tx, ns_key_meta(NOTE), value.data, value.len);
	r = engine_tx_apply(e, &tx);
	return r < 0 ? r : engine_sync(e);
}

static bool has_seal(const struct flush_note *n, uint64_t ino, int64_t sealed_ns)
{
	for (unsigned i = 0; i < n->nr_seals; i++)
		if (n->seals[i].ino == ino && n->seals[i].sealed_ns == sealed_ns)
			return true;
	return false;
}

void flush_note_add(struct flush_note *n, const char *url, uint64_t number, uint64_t ino, int64_t sealed_ns)
{
	if (strcmp(n->url, url) != 0 || n->number <= number) /* the numbers that were tried are taken */
		n->nr_seals = 0;
	snprintf(n->url, sizeof(n->url), "%s", url);
	n->number = number + 1;
	if (has_seal(n, ino, sealed_ns))
		return;
	if (n->nr_seals == FLUSH_NOTE_SEALS_MAX)
		memmove(n->seals, n->seals + 1, --n->nr_seals * sizeof(n->seals[0]));
	n->seals[n->nr_seals++] = (struct flush_note_seal){ ino, sealed_ns };
}

int flush_note_compare(const struct flush_note *n, const char *url, const struct tier_written *last)
{
	if (last->number == 0)
		return 0;
	if (!n || strcmp(n->url, url) != 0)
		return -ENOENT;
	if (n->number > last->number)
		return 0; /* the put did not take effect, or the last ones were deleted */
	/* The manifest may have a later number than the note, behind fences of collections: compare the seals. */
	if (has_seal(n, last->ino, last->sealed_ns))
		return 0;
	return last->ino == 0 && last->number == n->number ? 0 : -ENOTUNIQ;
}
