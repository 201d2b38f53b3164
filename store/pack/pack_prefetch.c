#include "store/pack/pack_prefetch.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/io.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

#define NR_SLOTS 8u

enum slot_state { SLOT_FREE, SLOT_WISHED, SLOT_READING, SLOT_READY };

struct slot {
	enum slot_state state;
	uint32_t pack, frame, from, to;
	uint64_t age; /* number of the wish */
	struct pack_buffer *buffer; /* of a ready slot */
	unsigned nr_users;
	bool done;
};

struct pack_prefetch {
	struct packs *packs; /* constant */
	_Atomic unsigned nr_used; /* slots that are not free */

	struct mutex lock; /* inside none; pack_buffers' inside it */
	struct cond changed;
	struct slot slots[NR_SLOTS] GUARDED_BY(lock);
	uint64_t nr_wishes GUARDED_BY(lock);
	pthread_t thread GUARDED_BY(lock);
	bool started GUARDED_BY(lock), stopping GUARDED_BY(lock);
};

int pack_prefetch_new(struct packs *p, struct pack_prefetch **ret)
{
	struct pack_prefetch *pf = calloc(1, sizeof(*pf));

	if (!pf)
		return -ENOMEM;
	pf->packs = p;
	mutex_init(&pf->lock);
	cond_init(&pf->changed);
	*ret = pf;
	return 0;
}

static void slot_empty(struct pack_prefetch *pf, struct slot *s) REQUIRES(pf->lock)
{
	assert(mutex_held(&pf->lock) && s->nr_users == 0);
	pack_buffer_put(&pf->packs->buffers, TAKE(s->buffer));
	s->state = SLOT_FREE;
	pf->nr_used--;
}

static struct slot *oldest_idle(struct pack_prefetch *pf, enum slot_state state) REQUIRES(pf->lock)
{
	struct slot *found = NULL;

	for (struct slot *s = pf->slots; s < pf->slots + NR_SLOTS; s++)
		if (s->state == state && s->nr_users == 0 && (!found || s->age < found->age))
			found = s;
	return found;
}

static struct slot *find(struct pack_prefetch *pf, uint32_t pack, uint32_t frame, uint32_t from, uint32_t to)
	REQUIRES(pf->lock)
{
	for (struct slot *s = pf->slots; s < pf->slots + NR_SLOTS; s++)
		if (s->state != SLOT_FREE && !s->done && s->pack == pack && s->frame == frame && s->from <= from &&
		    s->to >= to)
			return s;
	return NULL;
}

/* The table too, if it is not in memory, in one read where they are neighbours. Failures are not logged but for those
 * of the table: the reader will meet and tell them. */
static bool fill_from(struct packs *p, struct pack_file *file, const struct slot *wish, struct pack_buffer *b)
{
	bool has_table, with_table;
	struct pack_table table;
	struct table_view v;
	uint64_t off = pack_data_off(wish->frame) + wish->from;
	uint8_t *to = b->data + wish->from;
	uint32_t len = wish->to - wish->from;
	ssize_t n;

	has_table = pack_tables_get(p->tables, wish->pack, wish->frame, 0, 0, &v);
	if (has_table && (v.frame || v.error < 0)) {
		pack_tables_put(p->tables, &v);
		return false; /* the reader has it from memory, or not at all */
	}
	with_table = !has_table && wish->from == 0;
	if (with_table) {
		off -= PACK_BLOCK;
		to -= PACK_BLOCK;
		len += PACK_BLOCK;
	}
	io_rate_wait(p->conf.read_rate, len);
	n = io_pread(file->fd, to, len, off);
	if (n != (ssize_t)len)
		return false;
	p->read_bytes += len;
	if (has_table)
		return true;
	if (with_table)
		n = packs_check_table(p, wish->pack, wish->frame, &b->table, sizeof(b->table), &table);
	else
		n = packs_load_table(p, file, wish->frame, &table);
	if (n > 0)
		pack_tables_insert(p->tables, wish->pack, wish->frame, &table);
	return n > 0;
}

static struct pack_buffer *fill(struct packs *p, const struct slot *wish)
{
	struct pack_buffer *b;
	struct pack_file *file;
	bool filled;

	if (packs_file_get(p, wish->pack, &file) <= 0)
		return NULL;
	b = pack_buffer_get(&p->buffers);
	filled = b && fill_from(p, file, wish, b);
	pack_file_put(p->files, file);
	if (!filled)
		pack_buffer_put(&p->buffers, TAKE(b));
	return b;
}

static void *prefetch_thread(void *arg)
{
	struct pack_prefetch *pf = arg;
	struct slot *s, wish;
	struct pack_buffer *b;

	mutex_lock(&pf->lock);
	while (!pf->stopping) {
		s = oldest_idle(pf, SLOT_WISHED);
		if (!s) {
			cond_wait(&pf->changed, &pf->lock);
			continue;
		}
		s->state = SLOT_READING;
		wish = *s;
		mutex_unlock(&pf->lock);
		b = fill(pf->packs, &wish);
		mutex_lock(&pf->lock);
		s->buffer = b;
		s->state = SLOT_READY;
		if (!b)
			slot_empty(pf, s);
		cond_broadcast(&pf->changed);
	}
	mutex_unlock(&pf->lock);
	return NULL;
}

void pack_prefetch_free(struct pack_prefetch *pf)
{
	bool started;

	if (!pf)
		return;
	mutex_lock(&pf->lock);
	started = pf->started;
	pf->stopping = true;
	cond_broadcast(&pf->changed);
	mutex_unlock(&pf->lock);
	if (started)
		pthread_join(pf->thread, NULL);
	for (unsigned i = 0; i < NR_SLOTS; i++)
		pack_buffer_put(&pf->packs->buffers, pf->slots[i].buffer);
	cond_release(&pf->changed);
	mutex_release(&pf->lock);
	free(pf);
}

void pack_prefetch_wish(struct pack_prefetch *pf, uint32_t pack, uint32_t frame, uint32_t from, uint32_t to)
{
	struct slot *s = NULL;

	mutex_lock(&pf->lock);
	if (!pf->started)
		pf->started = pthread_create(&pf->thread, NULL, prefetch_thread, pf) == 0;
	if (pf->started && !find(pf, pack, frame, from, to)) {
		s = oldest_idle(pf, SLOT_FREE);
		if (!s && (s = oldest_idle(pf, SLOT_READY)))
			slot_empty(pf, s);
	}
	if (s) {
		*s = (struct slot){ .state = SLOT_WISHED, .pack = pack, .frame = frame, .from = from, .to = to };
		s->age = ++pf->nr_wishes;
		pf->nr_used++;
		cond_broadcast(&pf->changed);
	}
	mutex_unlock(&pf->lock);
}

static bool is_reading(struct pack_prefetch *pf, uint32_t pack, uint32_t frame) REQUIRES(pf->lock)
{
	for (struct slot *s = pf->slots; s < pf->slots + NR_SLOTS; s++)
		if (s->state == SLOT_READING && s->pack == pack && s->frame == frame)
			return true;
	return false;
}

static bool is_unused(struct pack_prefetch *pf)
{
	return atomic_load_explicit(&pf->nr_used, memory_order_relaxed) == 0;
}

void pack_prefetch_wait(struct pack_prefetch *pf, uint32_t pack, uint32_t frame)
{
	if (is_unused(pf))
		return;
	mutex_lock(&pf->lock);
	while (is_reading(pf, pack, frame))
		cond_wait(&pf->changed, &pf->lock);
	mutex_unlock(&pf->lock);
}

struct pack_buffer *pack_prefetch_get(struct pack_prefetch *pf, uint32_t pack, uint32_t frame, uint32_t from,
				      uint32_t to)
{
	struct pack_buffer *b = NULL;
	struct slot *s;

	if (is_unused(pf))
		return NULL;
	mutex_lock(&pf->lock);
	s = find(pf, pack, frame, from, to);
	if (s && s->state == SLOT_WISHED) {
		slot_empty(pf, s); /* not begun yet: reading it ourselves is no slower */
	} else if (s && s->state == SLOT_READY) {
		s->nr_users++;
		b = s->buffer;
	}
	mutex_unlock(&pf->lock);
	return b;
}

void pack_prefetch_put(struct pack_prefetch *pf, struct pack_buffer *b, bool done)
{
	mutex_lock(&pf->lock);
	for (struct slot *s = pf->slots; s < pf->slots + NR_SLOTS; s++) {
		if (s->buffer != b)
			continue;
		s->done |= done;
		if (--s->nr_users == 0 && s->done)
			slot_empty(pf, s);
		break;
	}
	mutex_unlock(&pf->lock);
}
