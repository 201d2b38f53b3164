/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies the content when it is taken, and compares it later, while the caller continues. */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "gpu/lib/producer.h"

struct cpu {
	struct producer producer;
	struct delta_record *record;
	uint8_t *content;
	size_t len, room;
	struct delta_take take; /* without literals */
	struct buf object;
	struct iovec part;
};

static struct cpu *cpu_of(struct producer *p)
{
	return container_of(p, struct cpu, producer);
}

static int ensure_room(struct cpu *c, uint64_t len)
{
	uint8_t *content;

	if (len <= c->room)
		return 0;
	content = realloc(c->content, len);
	if (!content)
		return -ENOMEM;
	c->content = content;
	c->room = len;
	return 0;
}

static int cpu_take(struct producer *p, const struct delta_buffer *buffers, size_t nr, const struct delta_take *take,
		    _unused_ void *stream)
{
	struct cpu *c = cpu_of(p);
	uint64_t end = 0;
	int r;

	r = ensure_room(c, nr > 0 ? buffers[nr - 1].off + buffers[nr - 1].len : 0);
	if (r < 0)
		return r;
	for (size_t i = 0; i < nr; i++) {
		memset(c->content + end, 0, buffers[i].off - end);
		memcpy(c->content + buffers[i].off, buffers[i].p, buffers[i].len);
		end = buffers[i].off + buffers[i].len;
	}
	c->len = end;
	c->take = *take;
	return 0;
}

static int cpu_finish(struct producer *p, struct delta_object *ret)
{
	struct cpu *c = cpu_of(p);
	int r;

	r = delta_record_take(c->record, c->content, c->len, &c->take, &c->object);
	if (r < 0)
		return r;
	r = delta_header_decode(c->object.data, c->object.len, &ret->header);
	if (r < 0)
		return r;
	c->part = (struct iovec){ c->object.data, c->object.len };
	ret->parts = &c->part;
	ret->nr_parts = 1;
	return 0;
}

static int cpu_commit(struct producer *p)
{
	delta_record_commit(cpu_of(p)->record);
	return 0;
}

static void cpu_abandon(struct producer *p)
{
	delta_record_abandon(cpu_of(p)->record);
}

static int cpu_forget(struct producer *p, uint32_t number)
{
	delta_record_forget(cpu_of(p)->record, number);
	return 0;
}

static void cpu_memory(_unused_ const struct producer *p, uint64_t *ret_now, uint64_t *ret_max)
{
	*ret_now = *ret_max = 0;
}

static void cpu_free(struct producer *p)
{
	struct cpu *c = cpu_of(p);

	delta_record_free(c->record);
	free(c->content);
	buf_release(&c->object);
	free(c);
}

static const struct producer_ops cpu_ops = {
	.take = cpu_take,
	.finish = cpu_finish,
	.commit = cpu_commit,
	.abandon = cpu_abandon,
	.forget = cpu_forget,
	.memory = cpu_memory,
	.free = cpu_free,
};

int producer_new_cpu(const struct delta_record_params *params, struct producer **ret)
{
	struct cpu *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->producer = (struct producer){ .ops = &cpu_ops, .device = PRODUCER_CPU };
	r = delta_record_new(params, &c->record);
	if (r < 0) {
		free(c);
		return r;
	}
	*ret = &c->producer;
	return 0;
}
