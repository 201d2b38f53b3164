/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Parity over what other nodes have: the store of one node that covers three others. These are real stores while their
 * directories are made; after that they are what they have told and the bytes of their chunks, which are there or lost
 * as a test wants it.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/util.h"
#include "fs/seal/seal_catalog.h"
#include "store/catalog/catalog_format.h"
#include "fs/posix/file.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/replica_receive.h"
#include "fs/posix/namespace.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "fs/mount_options.h"
#include "fs/seal/seal.h"
#include "mpi-agent/daemon/parity/stripes.h"
#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/daemon/service.h"
#include "store/check/check.h"
#include "tests/unit/fs/rig.h"
#include "tests/unit/moment.h"
#include "tests/unit/place.h"

#define PAGES 300u /* of the longest file; more than one chunk of parity */
#define PAGE_LEN 4096u
#define SHARED_PAGES 100u /* that a second directory has, too */
#define MANY_PAGES 1100u /* more than is added at once */

enum { HOLDER, A, B, C, NR_NODES };
enum { FIRST, SECOND, MANY, NR_DIRS };
static const char *const dir_names[] = { "first", "second", "many" };

struct chunk {
	struct fp fp;
	uint32_t len;
	uint8_t *bytes;
};

struct dir {
	uint64_t ino;
	int64_t sealed_ns;
	struct buf catalog;
	struct chunk *chunks; /* in order, some repeatedly */
	size_t nr;
};

struct world {
	char dir[64], path[NR_NODES][96], key[96];
	struct options o[NR_NODES];
	struct fs *fs; /* the holder's, or the one that is being made */
	struct cluster_node nodes[NR_NODES];
	uint32_t hosts[NR_NODES];
	struct dir dirs[NR_NODES][NR_DIRS];
	bool is_lost[NR_NODES];
	struct service_world now; /* those that are not lost */
	struct cluster_node now_nodes[NR_NODES];
	uint32_t now_hosts[NR_NODES];
	unsigned collect_at; /* a fetch, counted down; 0: none */
};

static const struct cred owner = { .uid = 1000, .gid = 100 };

static void mount(struct world *w, unsigned i)
{
	struct engine *e;

	assert_int_equal(engine_open(w->path[i], &w->o[i].engine, &e), 0);
	assert_int_equal(fs_open(e, &w->o[i], NULL, &w->fs), 0);
}

static void unmount(struct world *w)
{
	assert_int_equal(fs_close(w->fs), 0);
	w->fs = NULL;
}

/* --- what others have sealed --- */

static void write_pages(struct world *w, uint64_t dir, unsigned source, unsigned from, unsigned nr)
{
	struct names_new n = { .mode = S_IFREG | 0600 };
	uint8_t page[PAGE_LEN];
	struct stat st;
	struct file *f;

	assert_int_equal(names_make(w->fs, dir, "file", &n, &owner, &st), 0);
	assert_int_equal(file_open(w->fs, st.st_ino, O_RDWR, &f), 0);
	for (unsigned i = 0; i < nr; i++) {
		uint64_t x = (uint64_t)source << 32 | (from + i);

		for (size_t k = 0; k < sizeof(page); k++) {
			x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
			page[k] = (uint8_t)(x >> 56);
		}
		assert_int_equal(content_write(f->content, page, sizeof(page), (uint64_t)i * sizeof(page)), 0);
	}
	assert_int_equal(content_flush(f->content), 0);
	file_close(w->fs, f);
}

static int add(void *userdata, const void *p, size_t len)
{
	buf_add(userdata, p, len);
	return buf_error(userdata);
}

static void read_pieces(struct world *w, struct dir *d, const struct catalog_record *rec)
{
	struct cursor c = cursor_of(rec->data, rec->len);
	struct content_piece p;

	while (catalog_piece_next(&c, &p) > 0) {
		struct chunk k = { p.fp, p.chunk_len, malloc(p.chunk_len) };

		assert_int_equal(engine_cluster_chunk(w->fs->engine, k.fp, k.len, k.bytes), 1);
		d->chunks = reallocarray(d->chunks, d->nr + 1, sizeof(*d->chunks));
		d->chunks[d->nr++] = k;
	}
}

/* Of a node's own pages, or of those of another one. */
static void make_dir_of(struct world *w, unsigned node, unsigned number, unsigned source, unsigned from, unsigned nr)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct names_new n = { .mode = S_IFDIR | 0700 };
	struct dir *d = &w->dirs[node][number];
	struct catalog_sink sink = { add, &d->catalog };
	struct catalog_reader reader = { 0 };
	struct catalog_record rec;
	size_t at = 0, used;
	struct ns_seal seal;
	struct stat st;

	assert_int_equal(names_make(w->fs, NS_ROOT_INO, dir_names[number], &n, &owner, &st), 0);
	d->ino = st.st_ino;
	write_pages(w, d->ino, source, from, nr);
	assert_int_equal(seal_directory(w->fs, d->ino, &owner, &seal, &culprit), 0);
	d->sealed_ns = seal.sealed_ns;
	assert_int_equal(catalog_write(w->fs, d->ino, &sink), 0);
	while (catalog_reader_next(&reader, d->catalog.data + at, d->catalog.len - at, &used, &rec) > 0) {
		at += used;
		if (rec.type == CATALOG_PIECES)
			read_pieces(w, d, &rec);
	}
	assert_true(reader.at_end);
}

static void make_dir(struct world *w, unsigned node, unsigned number, unsigned from, unsigned nr)
{
	make_dir_of(w, node, number, node, from, nr);
}

static void forget_chunks(struct dir *d)
{
	while (d->nr > 0)
		free(d->chunks[--d->nr].bytes);
	free(TAKE(d->chunks));
}

/* --- which nodes take part --- */

static void lose(struct world *w, unsigned node, bool is_lost)
{
	w->is_lost[node] = is_lost;
	w->now = (struct service_world){ w->now_nodes, w->now_hosts, 0, 0 };
	for (unsigned i = 0; i < NR_NODES; i++)
		if (!w->is_lost[i]) {
			w->now_nodes[w->now.nr] = w->nodes[i];
			w->now_hosts[w->now.nr++] = w->hosts[i];
		}
}

static void fetch_one(const struct world *w, struct cluster_want *v)
{
	v->got = false;
	for (unsigned n = A; n < NR_NODES; n++)
		for (unsigned d = 0; d < NR_DIRS && !w->is_lost[n]; d++)
			for (size_t i = 0; i < w->dirs[n][d].nr && !v->got; i++)
				if (fp_equal(w->dirs[n][d].chunks[i].fp, v->fp)) {
					memcpy(v->buf, w->dirs[n][d].chunks[i].bytes, v->len);
					v->got = true;
				}
}

static int fetch(void *userdata, struct cluster_want *wants, size_t nr)
{
	struct world *w = userdata;

	if (w->collect_at > 0 && --w->collect_at == 0)
		rig_collect(w->fs);
	for (size_t i = 0; i < nr; i++)
		fetch_one(userdata, &wants[i]);
	return 0;
}

static struct stripe_io io_of(struct world *w)
{
	return (struct stripe_io){ w->fs, fetch, w };
}

/* --- what the holder is asked for --- */

struct slots {
	unsigned slot, nr;
};
static const struct slots all_of_it = { 0, 1 };

static struct link_replica *copy_of(struct world *w, unsigned node, unsigned number, struct slots slots)
{
	const struct dir *d = &w->dirs[node][number];
	struct link_replica *c = calloc(1, sizeof(*c));

	memcpy(c->node, w->nodes[node].id, sizeof(c->node));
	memcpy(c->origin, w->nodes[node].id, sizeof(c->origin));
	memcpy(c->name, w->nodes[node].name, sizeof(c->name));
	snprintf(c->path, sizeof(c->path), "%s", dir_names[number]);
	c->ino = d->ino;
	c->sealed_ns = d->sealed_ns;
	c->slot = slots.slot;
	c->nr_slots = slots.nr;
	return c;
}

static void take_copy(struct world *w, unsigned node, unsigned number, struct slots slots)
{
	const struct buf *catalog = &w->dirs[node][number].catalog;
	struct link_want want = { .fp = fp_of(w->fs->key, catalog->data, catalog->len), .len = (uint32_t)catalog->len };
	struct cluster_chunk chunk = { want.fp, want.len, catalog->data };
	struct link_replica *c = copy_of(w, node, number, slots);

	c->chunks = &want;
	c->nr_chunks = 1;
	assert_int_equal(engine_cluster_keep(w->fs->engine, &chunk, 1), 0);
	assert_int_equal(replica_receive_catalog(w->fs, c, w->nodes, NR_NODES), 0);
	free(c);
}

/* The sender has each node cover its part, and when all have, settle that. */
static int cover_part(struct world *w, unsigned node, unsigned number, struct slots slots)
{
	struct link_replica *c = copy_of(w, node, number, slots);
	struct stripe_io io = io_of(w);
	int r = replica_receive_cover(w->fs, c, &io, &w->now);

	free(c);
	return r;
}

static int settle_part(struct world *w, unsigned node, unsigned number, struct slots slots)
{
	struct link_replica *c = copy_of(w, node, number, slots);
	int r = replica_receive_settle(w->fs, c, &w->now);

	free(c);
	return r;
}

static int cover(struct world *w, unsigned node, unsigned number, struct slots slots)
{
	int r = cover_part(w, node, number, slots);

	return r == 0 ? settle_part(w, node, number, slots) : r;
}

static void protect(struct world *w, unsigned node, unsigned number)
{
	take_copy(w, node, number, all_of_it);
	assert_int_equal(cover(w, node, number, all_of_it), 0);
}

static void drop(struct world *w, unsigned node, unsigned number)
{
	struct link_drop d = { .ino = w->dirs[node][number].ino, .sealed_ns = INT64_MAX };

	memcpy(d.origin, w->nodes[node].id, sizeof(d.origin));
	memcpy(d.name, w->nodes[node].name, sizeof(d.name));
	assert_int_equal(replica_receive_drop(w->fs, &d), 0);
	assert_int_equal(replica_receive_uncover(w->fs, &w->now), 0);
}

static struct stripes_figures figures(struct world *w)
{
	struct stripes_figures f;

	assert_int_equal(stripes_figures(w->fs->stripes, &f), 0);
	return f;
}

static void expect_figures(struct world *w, size_t nr, unsigned parity_pages, unsigned covered_pages)
{
	struct stripes_figures f = figures(w);

	assert_int_equal(f.nr, nr);
	assert_int_equal(f.parity_bytes, parity_pages * PAGE_LEN);
	assert_int_equal(f.covered_bytes, covered_pages * PAGE_LEN);
}

/* Of a directory, how many chunks can be rebuilt here; each of them is what it was. */
static size_t nr_rebuilt(struct world *w, unsigned node, unsigned number)
{
	const struct dir *d = &w->dirs[node][number];
	struct cluster_want *wants = calloc(d->nr, sizeof(*wants));
	struct stripe_io io = io_of(w);
	size_t nr = 0;

	for (size_t i = 0; i < d->nr; i++)
		wants[i] = (struct cluster_want){ .fp = d->chunks[i].fp,
						  .len = d->chunks[i].len,
						  .buf = malloc(d->chunks[i].len) };
	assert_int_equal(stripes_rebuild(w->fs->stripes, &io, &w->now, wants, d->nr), 0);
	for (size_t i = 0; i < d->nr; i++) {
		nr += wants[i].got;
		if (wants[i].got)
			assert_memory_equal(wants[i].buf, d->chunks[i].bytes, wants[i].len);
		free(wants[i].buf);
	}
	free(wants);
	return nr;
}

static void expect_rebuilt(struct world *w, unsigned node, unsigned number)
{
	lose(w, node, true);
	assert_int_equal(nr_rebuilt(w, node, number), w->dirs[node][number].nr);
	lose(w, node, false);
}

/* --- a world --- */

static int set_up(void **state)
{
	static const unsigned pages[] = { [A] = PAGES, [B] = PAGES - 7, [C] = PAGES - 150 };
	struct world *w = calloc(1, sizeof(*w));
	FILE *f;

	snprintf(w->dir, sizeof(w->dir), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->key, sizeof(w->key), "%s/key", w->dir);
	f = fopen(w->key, "w");
	assert_non_null(f);
	fprintf(f, "%s", "thirty-two bytes and a few more of a key");
	fclose(f);
	for (unsigned i = NR_NODES; i-- > 0;) {
		snprintf(w->path[i], sizeof(w->path[i]), "%s/%u", w->dir, i);
		assert_int_equal(options_init(&w->o[i]), 0);
		w->o[i].store = w->o[i].mountpoint = w->path[i];
		w->o[i].engine.cluster = w->key;
		mount(w, i);
		w->hosts[i] = i;
		snprintf(w->nodes[i].name, sizeof(w->nodes[i].name), "node-%u", i);
		memcpy(w->nodes[i].id, engine_store_id(w->fs->engine), sizeof(w->nodes[i].id));
		if (i == HOLDER)
			break;
		make_dir(w, i, FIRST, 0, pages[i]);
		make_dir(w, i, SECOND, pages[i] - SHARED_PAGES, SHARED_PAGES + 20);
		unmount(w);
	}
	lose(w, HOLDER, false);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	const struct check_conf conf = { .cache = MiB(16), .read_data = true };
	struct world *w = *state;
	struct check_result res;
	char command[128];

	unmount(w);
	assert_int_equal(check_store(w->path[HOLDER], &conf, &res), 0);
	assert_int_equal(res.nr_left, 0);
	snprintf(command, sizeof(command), "rm -rf %s", w->dir);
	assert_int_equal(system(command), 0);
	for (unsigned i = 0; i < NR_NODES; i++) {
		options_release(&w->o[i]);
		for (unsigned d = 0; d < NR_DIRS; d++) {
			forget_chunks(&w->dirs[i][d]);
			buf_release(&w->dirs[i][d].catalog);
		}
	}
	free(w);
	return 0;
}

/* --- tests --- */

static void three_nodes_cost_as_much_as_the_largest(void **state)
{
	struct world *w = *state;

	protect(w, A, FIRST);
	expect_figures(w, 1, PAGES, PAGES);
	expect_rebuilt(w, A, FIRST); /* alone it is a copy */
	protect(w, C, FIRST);
	protect(w, B, FIRST);
	expect_figures(w, 1, PAGES, 3 * PAGES - 157);
	for (unsigned i = A; i <= C; i++)
		expect_rebuilt(w, i, FIRST);
	assert_int_equal(nr_rebuilt(w, A, FIRST), 0); /* no node is lost, and so nothing is rebuilt */
}

static void two_losses_are_too_many(void **state)
{
	struct world *w = *state;

	protect(w, A, FIRST);
	protect(w, C, FIRST);
	lose(w, A, true);
	lose(w, C, true);
	assert_int_equal(nr_rebuilt(w, C, FIRST), 0);
	assert_int_equal(nr_rebuilt(w, A, FIRST), 150); /* where A had no counterpart, parity is a copy */
}

static void what_is_covered_is_not_covered_again(void **state)
{
	struct world *w = *state;

	protect(w, A, FIRST);
	protect(w, A, SECOND);
	expect_figures(w, 2, PAGES + 20, PAGES + 20); /* one strip of a node in a stripe */
	protect(w, B, FIRST);
	protect(w, B, SECOND);
	expect_figures(w, 2, PAGES + 20, 2 * PAGES - 7 + 40);
	protect(w, A, FIRST);
	expect_figures(w, 2, PAGES + 20, 2 * PAGES - 7 + 40);
	for (unsigned i = FIRST; i <= SECOND; i++) {
		expect_rebuilt(w, A, i);
		expect_rebuilt(w, B, i);
	}
}

static void each_slot_covers_its_part(void **state)
{
	struct world *w = *state;
	uint64_t bytes = 0, before = 0;

	for (unsigned i = 0; i < 3; i++) {
		struct slots slots = { i, 3 };

		take_copy(w, A, FIRST, slots);
		assert_int_equal(cover(w, A, FIRST, slots), 0);
		bytes += figures(w).covered_bytes - before;
		/* what the slot before had covered is gone */
		assert_in_range(figures(w).covered_bytes, (PAGES / 3 - 50) * PAGE_LEN, (PAGES / 3 + 50) * PAGE_LEN);
	}
	assert_true(bytes > 0);
	lose(w, A, true);
	assert_int_equal(nr_rebuilt(w, A, FIRST) * PAGE_LEN, figures(w).covered_bytes);
}

static size_t nr_in_slot(const struct dir *d, struct slots slots)
{
	size_t nr = 0;

	for (size_t i = 0; i < d->nr; i++)
		nr += d->chunks[i].fp.lo % slots.nr == slots.slot;
	return nr;
}

/* Nodes have come or gone, and another part is this one's: while others cover theirs, directories of third nodes settle
 * and go, which sweeps. */
static void a_part_that_is_not_settled_yet_is_needed_too(void **state)
{
	const struct slots before = { 0, 3 }, after = { 1, 3 };
	struct world *w = *state;

	take_copy(w, A, FIRST, before);
	assert_int_equal(cover(w, A, FIRST, before), 0);
	assert_int_equal(cover_part(w, A, FIRST, after), 0);
	protect(w, B, FIRST);
	drop(w, B, FIRST);
	lose(w, A, true);
	assert_int_equal(nr_rebuilt(w, A, FIRST),
			 nr_in_slot(&w->dirs[A][FIRST], before) + nr_in_slot(&w->dirs[A][FIRST], after));
	lose(w, A, false);
	assert_int_equal(settle_part(w, A, FIRST, after), 0);
	lose(w, A, true);
	assert_int_equal(nr_rebuilt(w, A, FIRST), nr_in_slot(&w->dirs[A][FIRST], after));
}

static void nodes_of_one_host_share_no_stripe(void **state)
{
	struct world *w = *state;

	w->hosts[B] = w->hosts[A];
	lose(w, B, false);
	protect(w, A, FIRST);
	protect(w, B, FIRST);
	expect_figures(w, 2, 2 * PAGES - 7, 2 * PAGES - 7);
	protect(w, C, FIRST);
	expect_figures(w, 2, 2 * PAGES - 7, 3 * PAGES - 157);
}

static void a_stripe_goes_with_the_last_that_needs_it(void **state)
{
	struct world *w = *state;

	protect(w, A, FIRST);
	protect(w, A, SECOND);
	protect(w, B, FIRST);
	drop(w, A, FIRST);
	expect_figures(w, 2, PAGES + 20, 2 * PAGES - 7 + 20);
	expect_rebuilt(w, A, SECOND); /* which has some of the first one's chunks */
	expect_rebuilt(w, B, FIRST);
	drop(w, A, SECOND);
	expect_figures(w, 1, PAGES, 2 * PAGES - 7);
	expect_rebuilt(w, B, FIRST); /* with what A has pinned, though no node wants that for itself */
	drop(w, B, FIRST);
	expect_figures(w, 0, 0, 0);
}

static void a_stripe_that_has_lost_a_member_is_replaced(void **state)
{
	struct world *w = *state;

	protect(w, A, FIRST);
	protect(w, B, FIRST);
	lose(w, A, true);
	protect(w, B, FIRST); /* as when all is re-replicated */
	expect_figures(w, 2, 2 * PAGES - 7, 3 * PAGES - 14);
	assert_int_equal(nr_rebuilt(w, A, FIRST), w->dirs[A][FIRST].nr); /* the first one is still needed for A */
	lose(w, B, true);
	assert_int_equal(nr_rebuilt(w, B, FIRST), w->dirs[B][FIRST].nr);
	lose(w, B, false);
	drop(w, A, FIRST);
	expect_figures(w, 1, PAGES - 7, PAGES - 7);
}

/* The sender protects by whole copies now. */
static void what_comes_whole_is_not_covered_any_more(void **state)
{
	struct world *w = *state;
	const struct dir *d = &w->dirs[A][FIRST];

	protect(w, A, FIRST);
	protect(w, B, FIRST);
	for (size_t i = 0; i < d->nr; i++)
		assert_int_equal(engine_cluster_keep(w->fs->engine,
						     &(struct cluster_chunk){ d->chunks[i].fp, d->chunks[i].len,
									      d->chunks[i].bytes },
						     1),
				 0);
	take_copy(w, A, FIRST, (struct slots){ 0, 0 });
	assert_int_equal(replica_receive_uncover(w->fs, &w->now), 0);
	expect_figures(w, 1, PAGES, 2 * PAGES - 7); /* B needs it */
	drop(w, B, FIRST);
	expect_figures(w, 0, 0, 0);
}

/* As after a crash between a new stripe and the end of the old one. */
static void of_two_that_cover_the_same_one_goes(void **state)
{
	struct world *w = *state;
	struct strip_chunk *chunks = calloc(w->dirs[B][FIRST].nr, sizeof(*chunks));
	struct stripe_io io = io_of(w);
	struct stripe *v;
	size_t nr;

	protect(w, A, FIRST);
	take_copy(w, B, FIRST, all_of_it);
	for (size_t i = 0; i < w->dirs[B][FIRST].nr; i++)
		chunks[i] = (struct strip_chunk){ w->dirs[B][FIRST].chunks[i].fp, w->dirs[B][FIRST].chunks[i].len };
	assert_int_equal(stripe_load_all(w->fs, &v, &nr), 0);
	assert_int_equal(nr, 1);
	assert_int_equal(stripe_add(&io, v, &w->nodes[B], chunks, w->dirs[B][FIRST].nr), 0);
	expect_figures(w, 2, 2 * PAGES, 3 * PAGES - 7);
	assert_int_equal(replica_receive_uncover(w->fs, &w->now), 0);
	expect_figures(w, 1, PAGES, 2 * PAGES - 7);
	expect_rebuilt(w, A, FIRST);
	expect_rebuilt(w, B, FIRST);
	free(v);
	free(chunks);
}

static void an_unreachable_node_is_not_covered(void **state)
{
	struct world *w = *state;

	protect(w, A, FIRST);
	take_copy(w, B, FIRST, all_of_it);
	lose(w, B, true);
	assert_int_equal(cover(w, B, FIRST, all_of_it), -EHOSTUNREACH);
	w->now_nodes[w->now.nr] = w->nodes[B]; /* it takes part, but has lost its bytes */
	w->now_hosts[w->now.nr++] = w->hosts[B];
	assert_int_equal(cover(w, B, FIRST, all_of_it), -EIO);
	expect_figures(w, 1, PAGES, PAGES);
	expect_rebuilt(w, A, FIRST);
}

struct catalog_source {
	const struct buf *catalog;
	size_t at;
};

static ssize_t announce(void *userdata, void *to, size_t len)
{
	struct catalog_source *t = userdata;

	len = MIN(len, t->catalog->len - t->at);
	memcpy(to, t->catalog->data + t->at, len);
	t->at += len;
	return (ssize_t)len;
}

/* A reader on the holder's node looks at what another one has sealed, and so it refers to chunks that were announced
 * to it. */
static void look_at(struct world *w, unsigned node, unsigned number)
{
	const struct dir *d = &w->dirs[node][number];
	struct nodes_seal seal = { .ino = d->ino, .sealed_ns = d->sealed_ns, .path = dir_names[number], .cached = true };
	struct catalog_source t = { &d->catalog, 0 };

	memcpy(seal.from.id, w->nodes[node].id, sizeof(seal.from.id));
	memcpy(seal.from.name, w->nodes[node].name, sizeof(seal.from.name));
	assert_int_equal(nodes_take(w->fs, &seal, &(struct nodes_source){ announce, &t }, &w->nodes[node], NULL), 0);
}

static void a_node_that_only_refers_to_a_chunk_does_not_count(void **state)
{
	struct world *w = *state;

	unmount(w);
	mount(w, B);
	make_dir_of(w, B, MANY, A, 0, PAGES);
	unmount(w);
	mount(w, HOLDER);
	look_at(w, B, MANY);
	forget_chunks(&w->dirs[B][MANY]); /* B has them from A itself */
	protect(w, A, FIRST);
	expect_figures(w, 1, PAGES, PAGES);
	expect_rebuilt(w, A, FIRST);
}

static bool is_there(void *userdata _unused_)
{
	return true;
}

/* B and C have all of it. */
static int decide(void *userdata, const struct fp *offer _unused_, size_t nr, struct cluster_decision *ret)
{
	struct world *w = userdata;

	*ret = (struct cluster_decision){ .nodes = calloc(NR_NODES, sizeof(*ret->nodes)), .nr_nodes = NR_NODES, .self = HOLDER, .owners = calloc(nr + 1, sizeof(*ret->owners)), .nr = nr };
	memcpy(ret->nodes, w->nodes, sizeof(w->nodes));
	for (size_t i = 0; i < nr; i++)
		ret->owners[i] = (struct cluster_owners){ .index = (uint32_t)i, .nr = 2, .owners = { B, C }, .has = 3 };
	return 0;
}

static int settle(void *userdata _unused_, const struct cluster_decision *d, int stored, bool *has_stored)
{
	if (has_stored)
		has_stored[d->self] = stored == 0;
	return stored;
}

/* In a round it has been found that two others have all but the first pages of A: while one of them takes part these
 * are not covered. */
static void what_peers_are_known_to_have_is_not_covered(void **state)
{
	struct world *w = *state;
	const struct cluster_calls calls = {
		.userdata = w, .is_there = is_there, .decide = decide, .settle = settle, .fetch = fetch
	};
	struct names_new n = { .mode = S_IFDIR | 0700 };
	struct stat st;

	unmount(w);
	w->o[HOLDER].engine.cluster_calls = &calls;
	mount(w, HOLDER);
	assert_int_equal(names_make(w->fs, NS_ROOT_INO, "own", &n, &owner, &st), 0);
	write_pages(w, st.st_ino, A, 10, PAGES - 10);
	assert_int_equal(engine_sync(w->fs->engine), 0);
	protect(w, A, FIRST);
	expect_figures(w, 1, 10, 10);
	lose(w, B, true);
	protect(w, A, FIRST);
	expect_figures(w, 1, 10, 10);
	w->hosts[C] = w->hosts[A]; /* and so both would be lost */
	lose(w, C, false);
	protect(w, A, FIRST);
	assert_int_equal(figures(w).covered_bytes, PAGES * PAGE_LEN);
	unmount(w);
	w->o[HOLDER].engine.cluster_calls = NULL;
	mount(w, HOLDER);
}

/* What is cut by content does not end where a MiB does: a file of such chunks is told in parts of some. */
static void chunks_of_any_length_are_covered(void **state)
{
	struct world *w = *state;

	unmount(w);
	w->o[A].engine.chunking = CHUNKING_CDC;
	mount(w, A);
	make_dir(w, A, MANY, 20000, MANY_PAGES);
	unmount(w);
	mount(w, HOLDER);
	protect(w, A, MANY);
	expect_figures(w, 1, MANY_PAGES, MANY_PAGES);
	expect_rebuilt(w, A, MANY);
	protect(w, B, FIRST);
	expect_figures(w, 1, MANY_PAGES, MANY_PAGES + PAGES - 7);
	expect_rebuilt(w, A, MANY);
	expect_rebuilt(w, B, FIRST);
	drop(w, B, FIRST);
	expect_rebuilt(w, A, MANY);
}

static void parity_that_was_collected_meanwhile_is_no_parity(void **state)
{
	struct world *w = *state;

	protect(w, B, FIRST);
	unmount(w);
	mount(w, A);
	make_dir(w, A, MANY, 10000, MANY_PAGES);
	unmount(w);
	mount(w, HOLDER);
	take_copy(w, A, MANY, all_of_it);
	w->collect_at = 2;
	assert_int_equal(cover(w, A, MANY, all_of_it), -ESTALE);
	assert_int_equal(w->collect_at, 0);
	expect_figures(w, 1, PAGES - 7, PAGES - 7);
	expect_rebuilt(w, B, FIRST);
	assert_int_equal(cover(w, A, MANY, all_of_it), 0);
	expect_figures(w, 1, MANY_PAGES, MANY_PAGES + PAGES - 7);
	expect_rebuilt(w, A, MANY);
	rig_collect(w->fs); /* what is left of the old one; the new one has what it needs */
	expect_rebuilt(w, A, MANY);
	expect_rebuilt(w, B, FIRST);
}

static atomic_int writes_left;

static int crash_at_write(void *userdata, const struct io_event *ev)
{
	struct world *w = userdata;

	if ((ev->op == IO_WRITE || ev->op == IO_SYNC || ev->op == IO_UNLINK) && --writes_left == 0)
		assert_int_equal(moment_copy(w->path[HOLDER]), 0);
	return 0;
}

/* 1: before that write; 0: there were not so many. */
static int crash_covering(struct world *w, int at)
{
	const struct io_hook hook = { .before = crash_at_write, .userdata = w };
	bool has_crashed;

	writes_left = at;
	io_set_hook(&hook);
	assert_int_equal(cover(w, B, FIRST, all_of_it), 0);
	io_set_hook(NULL);
	has_crashed = writes_left <= 0;
	unmount(w);
	if (has_crashed)
		assert_int_equal(moment_restore(w->path[HOLDER]), 0);
	mount(w, HOLDER);
	return has_crashed;
}

/* At whatever write: nodes that were covered are, and new ones are once it has been tried again. */
static void a_crash_leaves_what_was_covered(void **state)
{
	struct world *w = *state;
	int nr = 0;

	protect(w, A, FIRST);
	take_copy(w, B, FIRST, all_of_it);
	while (crash_covering(w, ++nr) > 0)
		expect_rebuilt(w, A, FIRST);
	assert_in_range(nr, 6, 1000); /* several writes before it is covered, and then there is nothing to do */
	assert_int_equal(cover(w, B, FIRST, all_of_it), 0);
	assert_int_equal(replica_receive_uncover(w->fs, &w->now), 0);
	expect_figures(w, 1, PAGES, 2 * PAGES - 7);
	expect_rebuilt(w, A, FIRST);
	expect_rebuilt(w, B, FIRST);
}

int main(void)
{
#define with_world(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		with_world(three_nodes_cost_as_much_as_the_largest),
		with_world(two_losses_are_too_many),
		with_world(what_is_covered_is_not_covered_again),
		with_world(each_slot_covers_its_part),
		with_world(a_part_that_is_not_settled_yet_is_needed_too),
		with_world(nodes_of_one_host_share_no_stripe),
		with_world(a_stripe_goes_with_the_last_that_needs_it),
		with_world(a_stripe_that_has_lost_a_member_is_replaced),
		with_world(what_comes_whole_is_not_covered_any_more),
		with_world(of_two_that_cover_the_same_one_goes),
		with_world(an_unreachable_node_is_not_covered),
		with_world(a_node_that_only_refers_to_a_chunk_does_not_count),
		with_world(what_peers_are_known_to_have_is_not_covered),
		with_world(chunks_of_any_length_are_covered),
		with_world(parity_that_was_collected_meanwhile_is_no_parity),
		with_world(a_crash_leaves_what_was_covered),
	};

	return cmocka_run_group_tests_name("stripes", tests, NULL, NULL);
}
