/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The tree in memory and its log. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9fb21c651e98df25;
	return h ^ (h >> 29);
}

uint64_t hash(const void *p, size_t len)
{
	const uint8_t *b = p;
	uint64_t h = 0x9e3779b97f4a7c15 ^ len, v;

	for (; len >= 8; b += 8, len -= 8) {
		memcpy(&v, b, 8);
		h = mix(h, v);
	}
	v = 0;
	memcpy(&v, b, len);
	return mix(h, v) | 1;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void *shared(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(EXIT_FAILURE);
	}
	return p;
}

struct tree *tree_new(const char *name)
{
	struct tree *t = shared(sizeof(*t));
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&t->lock, &a);
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->data = shared(NR_NODES * FILE_MAX_SIZE);
	t->steps = shared(MAX_STEPS * sizeof(*t->steps));
	t->deltas = shared(MAX_DELTAS * sizeof(*t->deltas));
	t->births = shared(MAX_STEPS * sizeof(*t->births));
	t->bytes = shared(KEPT_BYTES);
	t->next_id = 1;
	tree_clear(t);
	return t;
}

void tree_clear(struct tree *t)
{
	int i;

	memset(t->node, 0, sizeof(t->node));
	for (i = 0; i < NR_DENTS; i++)
		t->dent[i].node = -1;
	madvise(t->data, NR_NODES * FILE_MAX_SIZE, MADV_REMOVE);
}

int node_new(struct tree *t, enum node_type type, uint32_t mode)
{
	int i;

	for (i = 0; i < NR_NODES; i++) {
		if (t->node[i].type != NODE_NONE)
			continue;
		t->node[i] = (struct node){ .type = type, .id = t->next_id++, .mode = mode, .mtime_ns = -1 };
		return i;
	}
	return -1;
}

void node_born(struct tree *t, int n, uint64_t ino)
{
	t->node[n].ino = ino;
	t->births[t->nr_births++] = (struct birth){ ino, t->node[n].id };
}

int dent_find(const struct tree *t, int dir, const char *name)
{
	int i;

	for (i = 0; i < NR_DENTS; i++)
		if (t->dent[i].node >= 0 && t->dent[i].dir == dir && strcmp(t->dent[i].name, name) == 0)
			return i;
	return -1;
}

bool dir_is_empty(const struct tree *t, int dir)
{
	int i;

	for (i = 0; i < NR_DENTS; i++)
		if (t->dent[i].node >= 0 && t->dent[i].dir == dir)
			return false;
	return true;
}

static int dent_of_dir(const struct tree *t, int dir)
{
	int i;

	for (i = 0; i < NR_DENTS; i++)
		if (t->dent[i].node == dir)
			return i;
	return -1;
}

int parent_of(const struct tree *t, int dir)
{
	int d = dent_of_dir(t, dir);

	return d < 0 ? 0 : t->dent[d].dir;
}

unsigned depth_of(const struct tree *t, int dir)
{
	unsigned n = 0;

	for (; dir != 0; dir = parent_of(t, dir))
		n++;
	return n;
}

bool is_below(const struct tree *t, int dir, int above)
{
	for (; dir != 0; dir = parent_of(t, dir))
		if (dir == above)
			return true;
	return dir == above;
}

void path_of(const struct tree *t, int dir, const char *name, char *ret, size_t size)
{
	char tail[4096];

	snprintf(ret, size, "%s", name);
	while (dir != 0) {
		int d = dent_of_dir(t, dir);

		snprintf(tail, sizeof(tail), "%s", ret);
		snprintf(ret, size, "%s/%s", d < 0 ? "?" : t->dent[d].name, tail);
		dir = d < 0 ? 0 : t->dent[d].dir;
	}
}

static void put(struct tree *t, enum key_kind kind, uint64_t id, uint64_t sub, uint64_t value)
{
	if (!t->logging)
		return;
	if (t->nr_deltas == MAX_DELTAS) {
		fprintf(stderr, "the log of the model is full: fewer operations in a phase, please\n");
		exit(EXIT_FAILURE);
	}
	t->deltas[t->nr_deltas++] = (struct delta){ { .id = id, .sub = sub, .kind = kind }, value };
	t->steps[t->nr_steps - 1].nr++;
}

static void put_node(struct tree *t, int n)
{
	const struct node *x = &t->node[n];
	bool there = x->type != NODE_NONE;
	uint64_t h = hash(x->target, strlen(x->target));
	int i;

	h = mix(mix(mix(mix(mix(h, x->type), x->mode), x->uid), x->gid), x->nlink) | 1;
	put(t, KEY_META, x->id, 0, there ? h : 0);
	put(t, KEY_SIZE, x->id, 0, there && x->type == NODE_FILE ? x->size + 1 : 0);
	put(t, KEY_MTIME, x->id, 0, there && x->mtime_ns >= 0 ? mix(1, x->mtime_ns) | 1 : 0);
	for (i = 0; i < NR_XATTRS; i++)
		put(t, KEY_XATTR, x->id, i, there ? x->xattr[i] : 0);
}

static uint64_t page_value(const uint8_t *p)
{
	static const uint8_t zero[PAGE];

	return memcmp(p, zero, PAGE) == 0 ? 0 : hash(p, PAGE);
}

static void put_pages(struct tree *t, int n, uint64_t off, uint64_t len)
{
	uint64_t i;

	if (t->logging && len > 0)
		for (i = off / PAGE; i <= (off + len - 1) / PAGE; i++)
			put(t, KEY_PAGE, t->node[n].id, i, page_value(data_of(t, n) + i * PAGE));
}

static void put_dent(struct tree *t, int dir, const char *name, uint64_t id)
{
	put(t, KEY_DENT, t->node[dir].id, hash(name, strlen(name)), id);
}

void keep_bytes(struct tree *t, int n, uint64_t off, uint64_t len, bool after)
{
	uint64_t page = off / PAGE, nr = (off + len + PAGE - 1) / PAGE - page, size = nr * PAGE;
	struct step *s = t->logging && len > 0 ? &t->steps[t->nr_steps - 1] : NULL;

	if (!s)
		return;
	if (!after) {
		if (t->bytes_end % KEPT_BYTES + 2 * size > KEPT_BYTES)
			t->bytes_end += KEPT_BYTES - t->bytes_end % KEPT_BYTES;
		s->may_tear = true;
		s->bytes.id = t->node[n].id;
		s->bytes.page = page;
		s->bytes.nr_pages = (uint32_t)nr;
		s->bytes.at = t->bytes_end;
		t->bytes_end += 2 * size;
	}
	memcpy(t->bytes + s->bytes.at % KEPT_BYTES + (after ? size : 0), data_of(t, n) + page * PAGE, size);
}

void step_begin(struct tree *t, const char *op)
{
	if (!t->logging)
		return;
	if (t->nr_steps == MAX_STEPS) {
		fprintf(stderr, "the log of the model is full: fewer operations in a phase, please\n");
		exit(EXIT_FAILURE);
	}
	t->steps[t->nr_steps++] = (struct step){
		.start_ns = now_ns(), .end_ns = UINT64_MAX, .first = t->nr_deltas, .op = op,
	};
}

void op_end(struct tree *t)
{
	uint64_t now = now_ns();

	for (; t->open_op < t->nr_steps; t->open_op++)
		t->steps[t->open_op].end_ns = now;
	t->pending = 0;
	t->nr_ops++;
}

static void node_unlinked(struct tree *t, int n)
{
	struct node *x = &t->node[n];

	if (x->type == NODE_DIR ? x->nlink > 1 : x->nlink > 0) {
		put_node(t, n);
		return;
	}
	if (x->type == NODE_FILE && x->size > 0) {
		memset(data_of(t, n), 0, x->size);
		put_pages(t, n, 0, x->size);
	}
	x->type = NODE_NONE;
	put_node(t, n);
}

static void dir_changed(struct tree *t, int dir)
{
	t->node[dir].mtime_ns = -1;
	put_node(t, dir);
}

bool dent_add(struct tree *t, int dir, const char *name, int node)
{
	bool is_dir = t->node[node].type == NODE_DIR;
	int i;

	for (i = 0; i < NR_DENTS && t->dent[i].node >= 0; i++)
		;
	if (i == NR_DENTS)
		return false;
	t->dent[i] = (struct dent){ .dir = dir, .node = node };
	snprintf(t->dent[i].name, NAME_SIZE, "%s", name);
	t->node[node].nlink += is_dir ? 2 : 1;
	t->node[dir].nlink += is_dir;
	put_dent(t, dir, name, t->node[node].id);
	put_node(t, node);
	dir_changed(t, dir);
	return true;
}

void dent_remove(struct tree *t, int d)
{
	int dir = t->dent[d].dir, n = t->dent[d].node;
	bool is_dir = t->node[n].type == NODE_DIR;

	put_dent(t, dir, t->dent[d].name, 0);
	t->dent[d].node = -1;
	t->node[n].nlink -= 1;
	t->node[dir].nlink -= is_dir;
	node_unlinked(t, n);
	dir_changed(t, dir);
}

void dent_move(struct tree *t, int d, int to_dir, const char *to_name)
{
	int dir = t->dent[d].dir, n = t->dent[d].node;
	bool is_dir = t->node[n].type == NODE_DIR;

	put_dent(t, dir, t->dent[d].name, 0);
	t->node[dir].nlink -= is_dir;
	t->node[to_dir].nlink += is_dir;
	t->dent[d].dir = to_dir;
	snprintf(t->dent[d].name, NAME_SIZE, "%s", to_name);
	put_dent(t, to_dir, to_name, t->node[n].id);
	dir_changed(t, dir);
	dir_changed(t, to_dir);
}

void dent_exchange(struct tree *t, int a, int b)
{
	struct dent *x = &t->dent[a], *y = &t->dent[b];
	int n = x->node, dirs = (t->node[y->node].type == NODE_DIR) - (t->node[x->node].type == NODE_DIR);

	x->node = y->node;
	y->node = n;
	t->node[x->dir].nlink += dirs;
	t->node[y->dir].nlink -= dirs;
	put_dent(t, x->dir, x->name, t->node[x->node].id);
	put_dent(t, y->dir, y->name, t->node[y->node].id);
	dir_changed(t, x->dir);
	dir_changed(t, y->dir);
}

void file_changed(struct tree *t, int n, uint64_t off, uint64_t len, uint64_t size)
{
	struct node *x = &t->node[n];

	x->size = size;
	x->mtime_ns = -1;
	put_pages(t, n, off, len);
	put_node(t, n);
}

void node_changed(struct tree *t, int n)
{
	put_node(t, n);
}

void log_reset(struct tree *t)
{
	int i;

	t->nr_steps = t->nr_deltas = t->nr_births = t->open_op = 0;
	t->pending = 0;
	t->logging = true;
	step_begin(t, "start");
	for (i = 0; i < NR_NODES; i++) {
		if (t->node[i].type == NODE_NONE)
			continue;
		node_born(t, i, t->node[i].ino);
		t->node[i].late_writes = false;
		put_node(t, i);
		if (t->node[i].type == NODE_FILE)
			put_pages(t, i, 0, t->node[i].size);
	}
	for (i = 0; i < NR_DENTS; i++)
		if (t->dent[i].node >= 0)
			put_dent(t, t->dent[i].dir, t->dent[i].name, t->node[t->dent[i].node].id);
	t->steps[0].synced = true;
	t->steps[0].start_ns = t->steps[0].end_ns = 0;
	t->open_op = 1;
}
