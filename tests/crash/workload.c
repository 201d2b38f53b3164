/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/workload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/util.h"
#include "store/engine.h"
#include "tests/crash/fate.h"
#include "tests/crash/model.h"
#include "tests/crash/tree.h"
#include "tests/content_sync.h"

#define PAGE 4096u
#define NR_POOL 20 /* pages that many files share */
#define NR_FILES 5 /* names per directory */
#define NR_SEEDS 40
#define MOVED_FROM 24 /* seeds from here on give the same bytes again and again, but that they have moved */
#define MOVED_BY 777
#define LIKE_FROM 16 /* seeds from here on, up to those, give nearly the same noise: as steps of a variable do */
#define LIKE_PAGES 40 /* of a file that has such, from its beginning on */
#define MOVED_PERIOD (8 * PAGE)
#define PAUSE_NS 4000000

void work_bytes(uint64_t seed, uint64_t off, uint64_t len, uint8_t *ret)
{
	bool moved = seed >= MOVED_FROM, alike = seed >= LIKE_FROM && !moved;

	if (moved) {
		off += (seed - MOVED_FROM) * MOVED_BY;
		seed = MOVED_FROM;
	}
	for (uint64_t done = 0; done < len;) {
		uint64_t at = moved ? (off + done) % MOVED_PERIOD : off + done;
		uint64_t page = at / PAGE, in = at % PAGE, n = MIN(PAGE - in, len - done);
		struct fate_rng rng = fate_rng(alike ? LIKE_FROM : seed, page, 0);
		uint64_t id = alike ? NR_POOL : fate_random(&rng, 32), words[PAGE / 8];

		/* a shared page or one of its own */
		rng = id < NR_POOL ? fate_rng(id, 0, 1) : fate_rng(alike ? LIKE_FROM : seed, page, 1);
		for (size_t i = 0; i < ARRAY_SIZE(words); i++)
			/* most can be compressed */
			words[i] = id < 2 ? 0 : fate_random(&rng, id % 4 && !alike ? 1 << 24 : UINT64_MAX);
		for (size_t i = 0; alike && i < ARRAY_SIZE(words); i++)
			words[i] += (seed - LIKE_FROM) * (i % 13);
		memcpy(ret + done, (uint8_t *)words + in, n);
		done += n;
	}
}

/* A path of the pool, there or not. */
static void any_path(struct fate_rng *rng, struct model *m, char ret[WORKLOAD_PATH])
{
	unsigned dir = (unsigned)fate_random(rng, 3), file = (unsigned)fate_random(rng, NR_FILES);
	char name[WORKLOAD_PATH];

	memset(ret, 0, WORKLOAD_PATH);
	snprintf(name, sizeof(name), "d%u", dir);
	if (dir < 2 && model_find(m, name))
		snprintf(ret, WORKLOAD_PATH, "d%u/f%u", dir, file);
	else
		snprintf(ret, WORKLOAD_PATH, "f%u", file);
}

/* A name of a file of this type that is there. NULL after some tries: hardly any. */
static struct model_node *present(struct fate_rng *rng, struct model *m, uint32_t type, char ret[WORKLOAD_PATH])
{
	for (int i = 0; i < 50; i++) {
		struct model_node *n;

		any_path(rng, m, ret);
		n = model_find(m, ret);
		if (n && (type == 0 || (n->mode & S_IFMT) == type))
			return n;
	}
	return NULL;
}

static void choose_range(struct fate_rng *rng, uint64_t size, struct work *op)
{
	bool aligned = fate_random(rng, 2);

	op->off = fate_random(rng, size + 2 * PAGE);
	op->len = 1 + fate_random(rng, 16 * PAGE);
	if (fate_random(rng, 24) == 0) /* far behind the end: another segment, a hole before it */
		op->off += MiB(1) * (1 + fate_random(rng, 2));
	if (aligned) {
		op->off = round_down(op->off, PAGE);
		op->len = round_up(op->len, PAGE);
	}
	op->off = MIN(op->off, MiB(3));
	op->len = MIN(op->len, round_up(op->off + 1, MiB(1)) - op->off); /* one segment, one step of the log */
	op->seed = fate_random(rng, NR_SEEDS);
}

/* Of a hole a patch is several steps of the log. */
static bool has_hole(const struct model_node *n, uint64_t off, uint64_t len)
{
	return memchr(n->data + off, 0, len) != NULL;
}

/* So few bytes that ranges without a zero are found soon. */
static bool choose_ranges(struct fate_rng *rng, const struct model_node *from, struct work *op)
{
	uint64_t all_from = WORK_RANGES * WORK_RANGES_FROM, all_to = WORK_RANGES * WORK_RANGES_TO;

	if (from->size < all_from)
		return false;
	op->other_off = fate_random(rng, from->size - all_from + 1);
	op->len = 1 + fate_random(rng, 12);
	op->off = MIN(op->off, round_up(op->off + 1, MiB(1)) - all_to);
	for (unsigned i = 0; i < WORK_RANGES; i++)
		if (has_hole(from, op->other_off + i * WORK_RANGES_FROM, op->len))
			return false;
	return true;
}

static bool choose_bytes(struct fate_rng *rng, struct model *m, struct work *op)
{
	struct model_node *n = present(rng, m, S_IFREG, op->path), *from;

	if (!n)
		return false;
	choose_range(rng, n->size, op);
	switch (op->kind) {
	case WORK_TRUNCATE:
		op->len = fate_random(rng, 3) ? fate_random(rng, n->size + 1) : n->size + fate_random(rng, 3 * PAGE);
		break;
	case WORK_APPEND:
		op->len = MIN(op->len, round_up(n->size + 1, MiB(1)) - n->size);
		break;
	case WORK_CLONE:
		from = present(rng, m, S_IFREG, op->other);
		if (!from || from == n || from->size == 0)
			return false;
		op->other_off = fate_random(rng, from->size);
		if (op->off % PAGE == 0)
			op->other_off = round_down(op->other_off, PAGE);
		op->len = MIN(op->len, from->size - op->other_off);
		break;
	case WORK_WRITE:
		if (fate_random(rng, 3) > 0)
			break;
		op->off = 0; /* a step of a variable */
		op->len = LIKE_PAGES * PAGE;
		op->seed = LIKE_FROM + fate_random(rng, MOVED_FROM - LIKE_FROM);
		break;
	case WORK_PATCH:
		from = present(rng, m, S_IFREG, op->other);
		return from && from != n && choose_ranges(rng, from, op);
	default:
		break;
	}
	return true;
}

/* Kinds by how often they come. */
static const enum work_kind kinds[] = {
	WORK_CREATE,  WORK_CREATE,  WORK_CREATE, WORK_MKDIR, WORK_SYMLINK, WORK_LINK,	WORK_RENAME,   WORK_RENAME,
	WORK_UNLINK,  WORK_UNLINK,  WORK_OWNER,	 WORK_XATTR, WORK_XATTR,   WORK_MTIME,	WORK_WRITE,    WORK_WRITE,
	WORK_WRITE,   WORK_WRITE,   WORK_WRITE,	 WORK_WRITE, WORK_APPEND,  WORK_APPEND, WORK_TRUNCATE, WORK_PUNCH,
	WORK_CLONE,   WORK_CLONE,   WORK_SYNC,	 WORK_SYNC,  WORK_SYNC,	   WORK_SYNC,	WORK_ALLOCATE, WORK_COLLECT,
	WORK_COMPACT, WORK_COMPACT, WORK_PATCH,	 WORK_PATCH, WORK_PATCH,   WORK_PATCH, /* most are drawn in vain */
};

/* false: this one makes no sense now, draw another. */
static bool choose(struct fate_rng *rng, struct model *m, struct work *op)
{
	struct model_node *n, *other;

	memset(op, 0, sizeof(*op));
	op->kind = kinds[fate_random(rng, ARRAY_SIZE(kinds))];
	op->mode = 0600 | (uint32_t)fate_random(rng, 64);
	op->uid = (uint32_t)fate_random(rng, 1000);
	op->mtime_ns = (int64_t)fate_random(rng, (uint64_t)TREE_TIME_NOW);
	switch (op->kind) {
	case WORK_SYNC:
	case WORK_COLLECT:
		return true;
	case WORK_CREATE:
	case WORK_SYMLINK:
		any_path(rng, m, op->path);
		if (op->kind == WORK_SYMLINK)
			snprintf(op->value, sizeof(op->value), "to %u", op->uid);
		return !model_find(m, op->path);
	case WORK_MKDIR:
		snprintf(op->path, sizeof(op->path), "d%u", (unsigned)fate_random(rng, 2));
		return !model_find(m, op->path);
	case WORK_LINK:
	case WORK_RENAME:
		n = present(rng, m, op->kind == WORK_LINK ? S_IFREG : 0, op->path);
		any_path(rng, m, op->other);
		other = model_find(m, op->other);
		return n && n != other && (op->kind == WORK_RENAME || !other);
	case WORK_XATTR:
		if (fate_random(rng, 3))
			snprintf(op->value, sizeof(op->value), "value %u", op->uid);
		return present(rng, m, 0, op->path);
	case WORK_UNLINK:
	case WORK_OWNER:
		return present(rng, m, 0, op->path);
	case WORK_MTIME:
		return present(rng, m, S_IFREG, op->path);
	case WORK_COMPACT:
		op->seed = fate_random(rng, NR_SEEDS);
		return present(rng, m, S_IFREG, op->path) && present(rng, m, S_IFREG, op->other);
	default:
		return choose_bytes(rng, m, op);
	}
}

int workload_new(uint64_t seed, size_t nr, struct workload **ret)
{
	_cleanup_(model_release) struct model m = { 0 };
	struct fate_rng rng = fate_rng(seed, 0, 0);
	struct workload *w = calloc(1, sizeof(*w));
	int r = 0;

	if (!w)
		return -ENOMEM;
	w->ops = calloc(nr, sizeof(*w->ops));
	w->lists = calloc(nr + 1, sizeof(*w->lists));
	for (size_t i = 0; w->ops && w->lists && r == 0 && i <= nr; i++) {
		struct buf list = BUF_EMPTY;

		r = model_list(&m, &list);
		w->lists[i] = (char *)list.data;
		if (i == nr || r < 0)
			break;
		while (!choose(&rng, &m, &w->ops[i]))
			;
		r = model_apply(&m, &w->ops[i]);
		w->nr++;
	}
	if (r < 0 || w->nr < nr) {
		workload_free(w);
		return r < 0 ? r : -ENOMEM;
	}
	*ret = w;
	return 0;
}

void workload_free(struct workload *w)
{
	if (!w)
		return;
	for (size_t i = 0; w->lists && i <= w->nr; i++)
		free(w->lists[i]);
	free(w->lists);
	free(w->ops);
	free(w);
}

static int clone(struct engine *e, const char *from_path, struct content *to, const struct work *op)
{
	struct content *from;
	uint64_t done = 0;
	int r = tree_open(e, from_path, &from);

	if (r < 0)
		return r;
	r = content_clone(from, op->other_off, to, op->off, op->len, &done);
	content_close(from);
	return r == 0 && done != op->len ? -EIO : r;
}

static int patch(struct engine *e, const char *from_path, struct content *to, const struct work *op)
{
	struct content_patch p[WORK_RANGES];
	struct content *from;
	int r = tree_open(e, from_path, &from);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < WORK_RANGES; i++)
		p[i] = (struct content_patch){ from, op->other_off + i * WORK_RANGES_FROM, op->off + i * WORK_RANGES_TO,
					       op->len };
	r = content_patch(to, p, WORK_RANGES);
	content_close(from);
	return r;
}

static int write_bytes(struct content *c, const struct work *op)
{
	_cleanup_(freep) uint8_t *bytes = malloc(op->len + 1);
	struct ns_content st;

	if (!bytes)
		return -ENOMEM;
	content_stat(c, &st);
	work_bytes(op->seed, op->kind == WORK_APPEND ? st.size : op->off, op->len, bytes);
	return content_write(c, bytes, op->len, op->kind == WORK_APPEND ? CONTENT_APPEND : op->off);
}

static int apply_bytes(struct engine *e, const char *path, const char *other, const struct work *op)
{
	struct content *c;
	int r = tree_open(e, path, &c), q;

	if (r < 0)
		return r;
	switch (op->kind) {
	case WORK_TRUNCATE:
		r = content_truncate(c, op->len);
		break;
	case WORK_PUNCH:
		r = content_punch(c, op->off, op->len);
		break;
	case WORK_ALLOCATE:
		r = content_allocate(c, op->off, op->len, true);
		break;
	case WORK_CLONE:
		r = clone(e, other, c, op);
		break;
	case WORK_PATCH:
		r = patch(e, other, c, op);
		break;
	case WORK_MTIME:
		r = content_set_times(c, op->mtime_ns, (int64_t)now_ns());
		break;
	default:
		r = write_bytes(c, op);
		break;
	}
	q = content_flush(c);
	if (q < 0)
		content_sync(c); /* reports the error once more, and not again */
	content_close(c);
	return r < 0 ? r : q;
}

static int collect(struct engine *e)
{
	struct gc_report report;
	int r = engine_gc(e, &(struct gc_conf){ .delete = true, .place = true, .move_below = 50 }, &report);

	return r == -EBUSY ? 0 : r; /* the other thread is at it */
}

/* As 64-bit numbers, which most pages hold, from a byte on at which they do not begin; in any order. As ranks of one
 * step, or as two steps. */
static int compact(struct engine *e, const char *path, const char *other, const struct work *op)
{
	const struct compact_extent x[] = { { 0, op->seed % 2 ? 0 : op->seed % 9, MiB(4) }, { 1, 0, MiB(4) } };
	const struct coding_shape numbers = { .type = { CODE_UINT, 8, false } };
	bool steps = op->seed % 2;
	const struct compact_variable v[] = { { "numbers", numbers, &x[1], steps ? 1 : 0, 0, 0 },
					      { "numbers", numbers, x, steps ? 1 : ARRAY_SIZE(x), 1, 0 } };
	struct compact_result result[ARRAY_SIZE(v)];
	struct compact_report report;
	uint64_t inos[2];
	struct compact_conf conf = {
		.inos = inos,
		.variable = v,
		.nr_variables = ARRAY_SIZE(v),
		.result = result,
		.chain = steps,
		.chain_forced = true, /* so that there are frames with parts that are coded against others */
		.order = op->seed % 3,
		.block = PAGE,
	};
	int r = tree_number(e, path, &inos[0]);

	if (r == 0)
		r = tree_number(e, other, &inos[1]);
	if (r == 0)
		r = engine_compact(e, &conf, &report);
	return r == -EBUSY ? 0 : r; /* as above */
}

int work_apply(struct engine *e, const char *top, const struct work *op)
{
	char path[2 * WORKLOAD_PATH], other[2 * WORKLOAD_PATH];

	nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	snprintf(path, sizeof(path), "%s/%s", top, op->path);
	snprintf(other, sizeof(other), "%s/%s", top, op->other);
	switch (op->kind) {
	case WORK_CREATE:
		return tree_create(e, path, op->mode);
	case WORK_MKDIR:
		return tree_mkdir(e, path);
	case WORK_SYMLINK:
		return tree_symlink(e, path, op->value);
	case WORK_LINK:
		return tree_link(e, path, other);
	case WORK_RENAME:
		return tree_rename(e, path, other);
	case WORK_UNLINK:
		return tree_unlink(e, path);
	case WORK_OWNER:
		return tree_set_owner(e, path, op->mode, op->uid);
	case WORK_XATTR:
		return tree_set_xattr(e, path, "user.a", op->value[0] ? op->value : NULL);
	case WORK_SYNC:
		return engine_sync(e);
	case WORK_COLLECT:
		return collect(e);
	case WORK_COMPACT:
		return compact(e, path, other, op);
	default:
		return apply_bytes(e, path, other, op);
	}
}

struct work_text work_text(const struct work *op)
{
	static const char *const verbs[] = {
		"create", "mkdir", "symlink", "link",	  "rename", "unlink",	"owner", "xattr",
		"mtime",  "write", "append",  "truncate", "punch",  "allocate", "clone", "patch",
		"sync",	  "collect", "compact",
	};
	struct work_text t;

	snprintf(t.s, sizeof(t.s), "%s %s %s off %" PRIu64 " len %" PRIu64 " from %" PRIu64 " seed %" PRIu64,
		 verbs[op->kind], op->path, op->other, op->off, op->len, op->other_off, op->seed);
	return t;
}
