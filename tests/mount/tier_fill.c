/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * tier_fill STORE DIRECTORY [PACK_BYTES]: puts the sealed directories of a store that is not mounted into a tier in
 * that directory, which exists, and prints for each its number in the tier and its path.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "fs/fs.h"
#include "fs/mount_options.h"
#include "fs/seal/dir_path.h"
#include "fs/seal/seal_catalog.h"
#include "index/namespace_table.h"
#include "store/engine.h"
#include "store/tier/tier.h"
#include "store/tier/tier_dir.h"
#include "store/tier/flush/tier_flush.h"

struct source {
	struct fs *fs;
	uint64_t ino;
	struct content *c; /* of the record that is being converted */
	uint64_t off;
	const struct content_piece *pieces;
	size_t nr;
};

static void located(void *userdata, struct content *c, uint64_t off, const struct content_piece *p, size_t nr)
{
	struct source *s = userdata;

	s->c = c;
	s->off = off;
	s->pieces = p;
	s->nr = nr;
}

struct puts {
	struct source *s;
	const struct tier_sink *to;
};

/* The userdata of catalog_write_located() is one for both functions. */
static int put(void *userdata, const void *p, size_t len)
{
	struct puts *x = userdata;

	return x->to->put(x->to->userdata, p, len);
}

static void located_of(void *userdata, struct content *c, uint64_t off, const struct content_piece *p, size_t nr)
{
	located(((struct puts *)userdata)->s, c, off, p, nr);
}

static int catalog(void *userdata, const struct tier_sink *to)
{
	struct source *s = userdata;
	struct puts x = { s, to };

	return catalog_write_located(s->fs, s->ino, &(struct catalog_sink){ put, &x }, located_of);
}

static int read_chunks(void *userdata, const struct tier_want *wants, size_t nr)
{
	struct source *s = userdata;
	int r = 0;

	for (size_t i = 0; i < nr && r == 0; i++) {
		struct content_chunk chunk = { .off = s->off, .fp = wants[i].fp, .len = wants[i].len, .buf = wants[i].buf };
		size_t k = 0;

		for (; k < s->nr && !(s->pieces[k].chunk_len == chunk.len && fp_equal(s->pieces[k].fp, chunk.fp)); k++)
			chunk.off += s->pieces[k].len;
		r = k < s->nr ? content_read_chunks(s->c, &chunk, 1) : -ENOENT;
	}
	return r;
}

static int flush(struct tier_writer *w, struct fs *fs, uint64_t ino, const struct ns_seal *seal)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct source s = { .fs = fs, .ino = ino };
	struct tier_checkpoint c = {
		.ino = ino,
		.sealed_ns = seal->sealed_ns,
		.files = seal->files,
		.directories = seal->directories,
		.bytes = seal->bytes,
		.catalog = catalog,
		.read = read_chunks,
		.userdata = &s,
	};
	struct tier_flushed done;
	int r = dir_path_prepend(fs, ino, &path);

	buf_add_u8(&path, 0);
	c.path = (const char *)path.data;
	memcpy(c.root, seal->root, sizeof(c.root));
	if (r == 0)
		r = tier_flush(w, &c, &done);
	if (r == 0)
		printf("%016llx %s\n", (unsigned long long)done.number, c.path);
	return r;
}

static int flush_all(struct fs *fs, struct tier *t, uint64_t pack_bytes)
{
	_cleanup_(tier_writer_closep) struct tier_writer *w = NULL;
	struct tier_writer_conf conf = { .pack_bytes = pack_bytes };
	struct ns_seal seal;
	uint64_t ino = 0;
	int r;

	tier_key_init(&conf.key, engine_key(fs->engine)->kind, engine_secret(fs->engine));
	memcpy(conf.store, engine_store_id(fs->engine), sizeof(conf.store));
	r = tier_writer_open(t, &conf, &w);
	while (r == 0 && (r = ns_next_seal(fs->db, ino, &ino, &seal)) > 0)
		r = flush(w, fs, ino, &seal);
	return r;
}

int main(int argc, char *argv[])
{
	struct options o;
	struct engine *e;
	struct fs *fs;
	struct tier *t;
	int r;

	if (argc < 3 || options_init(&o) < 0 || options_parse_list(&o, "ro") < 0)
		return 1;
	o.store = argv[1];
	o.mountpoint = "/";
	r = engine_open(argv[1], &o.engine, &e);
	if (r == 0)
		r = fs_open(e, &o, NULL, &fs);
	if (r == 0)
		r = tier_dir_open(argv[2], &(struct tier_dir_conf){ 0 }, &t);
	if (r < 0)
		return 1;
	r = flush_all(fs, t, argc > 3 ? strtoull(argv[3], NULL, 10) : 0);
	if (r < 0)
		log_errno(r, "%s", argv[2]);
	tier_close(t);
	fs_close(fs);
	options_release(&o);
	return r < 0 ? 1 : 0;
}
