/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/nodes/answers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/seal/seal_catalog.h"
#include "mpi-agent/daemon/cluster.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "mpi-agent/daemon/nodes/question_format.h"
#include "fs/seal/seal.h"
#include "fs/background/task.h"
#include "mpi-agent/wire/link_format.h"
#include "store/catalog/catalog_format.h"
#include "store/remote/cluster_calls.h"

#define LIST_BYTES (256u << 10) /* per answer */
#define PART_BYTES (LINK_ANSWER_MAX - 1)
#define CATALOGS_MAX 4u
#define CATALOG_KEPT_NS (UINT64_C(300) * 1000000000) /* after the last query for it */
#define PATIENCE_NS (UINT64_C(500) * 1000000) /* wait this long before replying -EINPROGRESS */
#define STEP_NS 5000000
#define CLAIM_NS (UINT64_C(5) * 1000000000) /* a result is reserved for its requester this long */
#define FPS_AT_ONCE 4096u
#define PIN_WAIT_NS (UINT64_C(10) * 1000000000) /* retry time for chunks that cannot be pinned now */

/* A sealed directory: its identity in the cluster, and its inode here. */
struct subject {
	uint8_t store[NS_STORE_ID_LEN];
	uint64_t ino;
	int64_t sealed_ns;
	uint64_t dir; /* inode in this store */
};

struct kept_catalog {
	struct subject s;
	int fd; /* -1: none */
	uint64_t len, used_ns;
};

struct answers {
	struct fs *fs; /* constant */
	char *dir;
	struct kept_catalog catalogs[CATALOGS_MAX]; /* used by the thread that calls answers_give() */

	struct task task;
	enum question_kind kind GUARDED_BY(task.lock); /* of the current work, constant while it runs; 0: none */
	struct subject subject GUARDED_BY(task.lock);
	int fd GUARDED_BY(task.lock); /* the catalog it has written; -1: none */
	uint64_t done_ns GUARDED_BY(task.lock);
};

/* --- long-running work --- */

struct writing {
	struct answers *a;
	int fd;
};

static int write_part(void *userdata, const void *p, size_t len)
{
	struct writing *w = userdata;

	for (size_t done = 0; done < len;) {
		ssize_t n = TEMP_FAILURE_RETRY(write(w->fd, (const uint8_t *)p + done, len - done));

		if (n < 0)
			return log_errno(-errno, "catalog of a sealed directory: cannot store it for another node");
		done += (size_t)n;
	}
	return task_goes_on(&w->a->task) ? 0 : -ECANCELED;
}

static int make_catalog(struct answers *a, const struct subject *s)
{
	struct writing w = { a, open(a->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) };
	int r;

	if (w.fd < 0)
		return log_errno(-errno, "%s: cannot create a file for a catalog", a->dir);
	r = catalog_write(a->fs, s->dir, &(struct catalog_sink){ write_part, &w });
	mutex_lock(&a->task.lock);
	if (r == 0) {
		closep(&a->fd); /* one that was never requested again */
		a->fd = w.fd;
		w.fd = -1;
	}
	mutex_unlock(&a->task.lock);
	closep(&w.fd);
	return r;
}

/* Pin the chunks. Some cannot be pinned for a while, for instance during a garbage collection here. */
static int pin(struct answers *a, const struct fp *fps, size_t nr, bool *all)
{
	uint64_t until = monotonic_ns() + PIN_WAIT_NS;
	int r;

	while ((r = engine_cluster_pin_all(a->fs->engine, fps, nr)) == -EAGAIN && *all && monotonic_ns() < until) {
		if (!task_goes_on(&a->task))
			return -ECANCELED;
		nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
	}
	if (r == -EAGAIN)
		*all = false; /* wait no longer for the following ones */
	return r == -EAGAIN ? 0 : r;
}

/*
 * Pins all chunks of a directory while its catalog is generated, since the catalog lists them all. catalog_write()
 * checks at its end that the directory is still sealed: a seal removed earlier would mean that chunks may have been
 * deleted before they were pinned.
 */
struct holding {
	struct answers *a;
	struct catalog_reader reader;
	struct fp *fps;
	size_t nr;
	bool all;
};

static int pin_some(struct holding *h, size_t at_least)
{
	int r;

	if (h->nr < at_least || h->nr == 0)
		return 0;
	r = task_goes_on(&h->a->task) ? pin(h->a, h->fps, h->nr, &h->all) : -ECANCELED;
	h->nr = 0;
	return r;
}

static int pin_pieces(struct holding *h, const struct catalog_record *rec)
{
	struct cursor c = cursor_of(rec->data, rec->len);
	struct content_piece p;
	int r = 0;

	while (r >= 0 && (r = catalog_piece_next(&c, &p)) > 0) {
		if (p.chunk_len > 0)
			h->fps[h->nr++] = p.fp;
		r = pin_some(h, FPS_AT_ONCE);
	}
	return r;
}

/* catalog_write() passes whole records. */
static int pin_records(void *userdata, const void *p, size_t len)
{
	struct holding *h = userdata;
	const uint8_t *at = p, *end = at + len;
	struct catalog_record rec;
	size_t used;
	int r = 0;

	while (r >= 0 && (r = catalog_reader_next(&h->reader, at, (size_t)(end - at), &used, &rec)) > 0) {
		at += used;
		if (rec.type == CATALOG_PIECES)
			r = pin_pieces(h, &rec);
	}
	return r == 0 && h->reader.at_end ? pin_some(h, 0) : r; /* pin the rest before the seal is checked */
}

static int pin_directory(struct answers *a, const struct subject *s)
{
	struct holding h = { .a = a, .all = true, .fps = calloc(FPS_AT_ONCE, sizeof(*h.fps)) };
	int r = h.fps ? cluster_register_peers(a->fs->cluster) : -ENOMEM;

	if (r == 0)
		r = catalog_write(a->fs, s->dir, &(struct catalog_sink){ pin_records, &h });
	free(h.fps);
	return r < 0 ? r : h.all ? 0 : -EAGAIN;
}

static int make_answer(void *userdata)
{
	struct answers *a = userdata;
	enum question_kind kind;
	struct subject s;
	int r;

	mutex_lock(&a->task.lock);
	kind = a->kind;
	s = a->subject;
	mutex_unlock(&a->task.lock);
	r = kind == QUESTION_CATALOG ? make_catalog(a, &s) : pin_directory(a, &s);
	mutex_lock(&a->task.lock);
	a->done_ns = monotonic_ns();
	mutex_unlock(&a->task.lock);
	return r;
}

static bool is_same(const struct subject *a, const struct subject *b)
{
	return a->dir == b->dir && a->ino == b->ino && a->sealed_ns == b->sealed_ns &&
	       memcmp(a->store, b->store, sizeof(a->store)) == 0;
}

/*
 * Start the work, or get its state. 0: done; -EINPROGRESS; else its error. A result is returned once; the next request
 * for the same starts again.
 */
static int start_or_claim(struct answers *a, enum question_kind kind, const struct subject *s, int *ret_fd)
	REQUIRES(a->task.lock)
{
	bool is_this = a->kind == kind && is_same(&a->subject, s);
	int r;

	if (!task_is_idle(&a->task))
		return -EINPROGRESS; /* possibly with other work */
	if (is_this) {
		a->kind = 0;
		*ret_fd = a->fd;
		a->fd = -1;
		return a->task.status.error;
	}
	if (a->kind != 0 && monotonic_ns() - a->done_ns < CLAIM_NS)
		return -EINPROGRESS;
	a->kind = kind;
	a->subject = *s;
	r = task_start(&a->task, 0);
	return r < 0 ? r : -EINPROGRESS;
}

static int get_done(struct answers *a, enum question_kind kind, const struct subject *s, int *ret_fd)
{
	uint64_t until = monotonic_ns() + PATIENCE_NS;
	int r;

	for (;;) {
		mutex_lock(&a->task.lock);
		r = start_or_claim(a, kind, s, ret_fd);
		mutex_unlock(&a->task.lock);
		if (r != -EINPROGRESS || monotonic_ns() >= until)
			return r;
		nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
	}
}

/* --- find the directory --- */

static int find_replica(struct answers *a, struct subject *s)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r;

	while ((r = nodes_next(a->fs, top, &top, &c)) > 0)
		if (c.ino == s->ino && c.sealed_ns == s->sealed_ns && memcmp(c.store, s->store, sizeof(c.store)) == 0) {
			s->dir = top;
			return 0;
		}
	return r < 0 ? r : -ENODATA;
}

static int find_subject(struct answers *a, struct subject *s)
{
	struct ns_seal seal;
	int r;

	if (memcmp(s->store, engine_store_id(a->fs->engine), sizeof(s->store)) != 0)
		return find_replica(a, s);
	s->dir = s->ino;
	r = ns_get_seal(a->fs->db, s->ino, &seal);
	return r < 0 ? r : r == 0 || !seal.is_complete || seal.sealed_ns != s->sealed_ns ? -ENODATA : 0;
}

/* --- answers --- */

static int encode_seals(struct answers *a, uint64_t *after, size_t max, struct buf *ret)
{
	struct answer_seal t = { 0 };
	struct ns_seal seal;
	uint32_t access;
	int r = 1;

	memcpy(t.store, engine_store_id(a->fs->engine), sizeof(t.store));
	cluster_name(a->fs->cluster, t.name);
	while (*after != QUESTION_AT_END && ret->len < max) {
		_cleanup_(buf_release) struct buf path = BUF_EMPTY;

		r = seal_next(a->fs, *after, 0, &t.ino, &seal, &path);
		if (r <= 0) {
			*after = QUESTION_AT_END;
			return r;
		}
		*after = t.ino;
		t.sealed_ns = seal.sealed_ns;
		if (path.len > NS_PATH_MAX)
			continue; /* too long to be opened */
		r = catalog_access(a->fs, t.ino, &access);
		if (r == -ESTALE)
			continue; /* removed meanwhile */
		if (r < 0)
			return r;
		t.access = (uint8_t)(ANSWER_ACCESS_KNOWN | access);
		if (path.len > 0)
			memcpy(t.path, path.data, path.len);
		t.path[path.len] = '\0';
		answer_seal_encode(&t, ret);
	}
	return 0;
}

static int encode_replicas(struct answers *a, uint64_t *after, size_t max, struct buf *ret)
{
	struct answer_seal t = { 0 };
	struct ns_replica c;

	while (*after != QUESTION_AT_END && ret->len < max) {
		int r = nodes_next(a->fs, *after, after, &c);

		if (r <= 0) {
			*after = QUESTION_AT_END;
			return r;
		}
		t.ino = c.ino;
		t.sealed_ns = c.sealed_ns;
		memcpy(t.store, c.store, sizeof(t.store));
		memcpy(t.name, c.name, sizeof(t.name));
		memcpy(t.path, c.path, sizeof(t.path));
		answer_seal_encode(&t, ret);
	}
	return 0;
}

static int answer_seals(struct answers *a, const struct question *q, struct buf *ret)
{
	uint64_t seals_after = q->seals_after, replicas_after = q->replicas_after;
	_cleanup_(buf_release) struct buf list = BUF_EMPTY;
	int r = encode_seals(a, &seals_after, LIST_BYTES, &list);

	if (r == 0)
		r = encode_replicas(a, &replicas_after, LIST_BYTES, &list);
	if (r < 0)
		return r;
	answer_head_encode(seals_after, replicas_after, ret);
	buf_add(ret, list.data, list.len);
	return buf_error(&list);
}

/* A free slot, or the least recently used one. */
static struct kept_catalog *make_room(struct answers *a)
{
	struct kept_catalog *k = &a->catalogs[0];

	for (unsigned i = 1; i < CATALOGS_MAX && k->fd >= 0; i++)
		if (a->catalogs[i].fd < 0 || a->catalogs[i].used_ns < k->used_ns)
			k = &a->catalogs[i];
	closep(&k->fd);
	k->fd = -1;
	return k;
}

static void drop_old(struct answers *a)
{
	uint64_t now = monotonic_ns();

	for (struct kept_catalog *k = a->catalogs; k < a->catalogs + CATALOGS_MAX; k++)
		if (k->fd >= 0 && now - k->used_ns > CATALOG_KEPT_NS) {
			closep(&k->fd);
			k->fd = -1;
		}
}

static int get_catalog(struct answers *a, const struct subject *s, struct kept_catalog **ret)
{
	struct kept_catalog *k = NULL;
	struct stat st;
	int r, fd = -1;

	for (k = a->catalogs; k < a->catalogs + CATALOGS_MAX; k++)
		if (k->fd >= 0 && is_same(&k->s, s)) {
			*ret = k;
			return 0;
		}
	r = get_done(a, QUESTION_CATALOG, s, &fd);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0) {
		r = log_errno(-errno, "catalog of a sealed directory");
		closep(&fd);
		return r;
	}
	k = make_room(a);
	*k = (struct kept_catalog){ *s, fd, (uint64_t)st.st_size, 0 };
	*ret = k;
	return 0;
}

static int answer_catalog(struct answers *a, const struct question *q, const struct subject *s, struct buf *ret)
{
	_cleanup_(freep) uint8_t *part = malloc(PART_BYTES);
	struct kept_catalog *k = NULL;
	ssize_t n;
	int r = part ? get_catalog(a, s, &k) : -ENOMEM;

	if (r < 0)
		return r;
	k->used_ns = monotonic_ns();
	if (q->off > k->len)
		return -EINVAL;
	n = TEMP_FAILURE_RETRY(pread(k->fd, part, MIN(k->len - q->off, (uint64_t)PART_BYTES), (off_t)q->off));
	if (n < 0)
		return log_errno(-errno, "catalog of a sealed directory");
	answer_catalog_encode(q->off + (uint64_t)n == k->len, part, (size_t)n, ret);
	return 0;
}

int answers_give(struct answers *a, const void *question, size_t len, struct buf *ret)
{
	struct question q;
	struct subject s;
	int r = question_decode(question, len, &q), none = -1;

	drop_old(a);
	if (r < 0)
		return r;
	if (q.kind == QUESTION_SEALS)
		return answer_seals(a, &q, ret);
	s = (struct subject){ .ino = q.ino, .sealed_ns = q.sealed_ns };
	memcpy(s.store, q.store, sizeof(s.store));
	r = find_subject(a, &s);
	if (r < 0)
		return r;
	return q.kind == QUESTION_CATALOG ? answer_catalog(a, &q, &s, ret) : get_done(a, QUESTION_HOLD, &s, &none);
}

int answers_new(struct fs *fs, const char *dir, struct answers **ret)
{
	struct answers *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->fs = fs;
	a->fd = -1;
	for (unsigned i = 0; i < CATALOGS_MAX; i++)
		a->catalogs[i].fd = -1;
	task_init(&a->task, "answers", make_answer, a);
	a->dir = strdup(dir);
	if (!a->dir) {
		answers_free(a);
		return -ENOMEM;
	}
	*ret = a;
	return 0;
}

void answers_free(struct answers *a)
{
	if (!a)
		return;
	task_release(&a->task);
	closep(&a->fd);
	for (unsigned i = 0; i < CATALOGS_MAX; i++)
		closep(&a->catalogs[i].fd);
	free(a->dir);
	free(a);
}
