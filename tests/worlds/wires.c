/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worlds_internal.h"

void wire_init(struct wire *w)
{
	*w = (struct wire){ .end = &w->first };
}

void wire_release(struct wire *w)
{
	for (struct packet *p; (p = w->first);) {
		w->first = p->next;
		buf_release(&p->bytes);
		free(p);
	}
	wire_init(w);
}

void wire_send(struct wire *w, uint64_t at_ns, struct buf *bytes)
{
	struct packet *p = calloc(1, sizeof(*p));

	if (!p || buf_error(bytes) < 0)
		abort();
	p->at_ns = w->last_ns = MAX(at_ns, w->last_ns);
	buf_move(&p->bytes, bytes);
	*w->end = p;
	w->end = &p->next;
}

bool wire_take(struct wire *w, uint64_t now_ns, struct buf *ret)
{
	struct packet *p = w->first;

	if (!p || p->at_ns > now_ns)
		return false;
	w->first = p->next;
	if (!w->first)
		w->end = &w->first;
	buf_move(ret, &p->bytes);
	free(p);
	return true;
}

uint64_t wire_next_ns(const struct wire *w)
{
	return w->first ? w->first->at_ns : NEVER;
}

/* --- what an agent calls --- */

int __wrap_link_read(struct link *l);
int __wrap_link_write(struct link *l);
void __wrap_link_release(struct link *l);

int __wrap_link_read(struct link *l)
{
	struct daemon *d = ws->current->daemon;
	struct buf b = BUF_EMPTY;
	int any = 0;

	if (l->in_at > 0)
		memmove(l->in.data, l->in.data + l->in_at, l->in.len - l->in_at);
	l->in.len -= l->in_at;
	l->in_at = 0;
	while (!ws->is_dead && wire_take(&d->out, ws->now_ns, &b)) {
		buf_add(&l->in, b.data, b.len);
		buf_release(&b);
		any = 1;
	}
	return any || d->is_connected ? any : -ECONNRESET;
}

/* A message at a time: what is encoded is whole. */
static void send_one(struct daemon *d, const uint8_t *p, size_t len)
{
	struct buf b = BUF_EMPTY;

	buf_add(&b, p, len);
	wire_send(&d->in, ws->now_ns + ws_between(0, MS), &b);
}

int __wrap_link_write(struct link *l)
{
	struct daemon *d = ws->current->daemon;
	size_t at = l->out_at;

	if (!d->is_connected)
		return -EPIPE;
	while (at < l->out.len && !ws->is_dead) {
		struct link_header h;

		if (link_decode_header(l->out.data + at, sizeof(struct link_header_wire), &h) < 0)
			abort();
		send_one(d, l->out.data + at, sizeof(struct link_header_wire) + h.len);
		at += sizeof(struct link_header_wire) + h.len;
	}
	buf_clear(&l->out);
	l->out_at = 0;
	return 1;
}

void __wrap_link_release(struct link *l)
{
	struct daemon *d = ws->current->daemon;

	if (l->fd >= 0 && d->is_connected)
		d->closed_ns = MAX(d->in.last_ns, ws->now_ns + ws_between(0, MS)); /* what was sent comes before */
	l->fd = -1;
	buf_release(&l->in);
	buf_release(&l->out);
	l->in_at = l->out_at = 0;
}
