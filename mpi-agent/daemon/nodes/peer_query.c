/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/nodes/peer_query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/mutex.h"
#include "base/util.h"
#include "mpi-agent/daemon/cluster.h"
#include "mpi-agent/daemon/nodes/question_format.h"

#define WORK_NS (UINT64_C(600) * 1000000000) /* time limit for a node to write a catalog or to pin */
#define BUSY_NS (UINT64_C(30) * 1000000000) /* time limit for a node that is overloaded */
#define BUSY_STEP_NS 50000000
#define SILENT_MIN_NS (UINT64_C(2) * 1000000000) /* an unresponsive node is not asked for this long, ... */
#define SILENT_MAX_NS (UINT64_C(60) * 1000000000) /* doubled each time it does not answer, up to this */
#define SILENT_MAX 16u /* unresponsive nodes recorded */

struct silent {
	uint8_t id[NS_STORE_ID_LEN];
	uint64_t until_ns, pause_ns; /* 0: responsive */
};

struct peer_query {
	struct cluster *cluster; /* constant */
	struct mutex lock; /* leaf */
	struct silent silent[SILENT_MAX] GUARDED_BY(lock);
};

int peer_query_new(struct cluster *cluster, struct peer_query **ret)
{
	struct peer_query *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->cluster = cluster;
	mutex_init(&o->lock);
	*ret = o;
	return 0;
}

void peer_query_free(struct peer_query *o)
{
	if (!o)
		return;
	mutex_release(&o->lock);
	free(o);
}

static struct silent *find_silent(struct peer_query *o, const uint8_t *id) REQUIRES(o->lock)
{
	for (unsigned i = 0; i < SILENT_MAX; i++)
		if (o->silent[i].pause_ns > 0 && memcmp(o->silent[i].id, id, sizeof(o->silent[i].id)) == 0)
			return &o->silent[i];
	return NULL;
}

static bool is_silent(struct peer_query *o, const uint8_t *id)
{
	const struct silent *s;
	bool yes;

	mutex_lock(&o->lock);
	s = find_silent(o, id);
	yes = s && monotonic_ns() < s->until_ns;
	mutex_unlock(&o->lock);
	return yes;
}

/* Replaces the entry that expires first if the table is full. */
static struct silent *add_silent(struct peer_query *o, const uint8_t *id) REQUIRES(o->lock)
{
	struct silent *s = &o->silent[0];

	for (unsigned i = 1; i < SILENT_MAX; i++)
		if (o->silent[i].until_ns < s->until_ns)
			s = &o->silent[i];
	*s = (struct silent){ .pause_ns = SILENT_MIN_NS / 2 };
	memcpy(s->id, id, sizeof(s->id));
	return s;
}

static void note_silence(struct peer_query *o, const uint8_t *id, bool is_silent)
{
	uint64_t now = monotonic_ns();
	struct silent *s;

	mutex_lock(&o->lock);
	s = find_silent(o, id);
	if (s && !is_silent)
		*s = (struct silent){ 0 };
	if (!s && is_silent)
		s = add_silent(o, id);
	if (is_silent && now >= s->until_ns) { /* else another thread has waited at the same time */
		s->pause_ns = MIN(2 * s->pause_ns, SILENT_MAX_NS);
		s->until_ns = now + s->pause_ns;
	}
	mutex_unlock(&o->lock);
}

int peer_query_ask(struct peer_query *o, const uint8_t *id, const struct question *what, struct buf *ret)
{
	uint64_t start = monotonic_ns();
	_cleanup_(buf_release) struct buf question = BUF_EMPTY;
	int r;

	question_encode(what, &question);
	r = is_silent(o, id) ? -ETIMEDOUT : buf_error(&question);
	while (r == 0) {
		buf_clear(ret);
		r = cluster_ask(o->cluster, id, question.data, question.len, ret);
		note_silence(o, id, r == -ETIMEDOUT);
		if ((r != -EINPROGRESS || monotonic_ns() - start > WORK_NS) &&
		    (r != -EBUSY || monotonic_ns() - start > BUSY_NS))
			return r;
		if (r == -EBUSY)
			nanosleep(&(struct timespec){ .tv_nsec = BUSY_STEP_NS }, NULL);
		r = 0;
	}
	return r;
}
