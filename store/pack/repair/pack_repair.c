/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/repair/pack_repair.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

/* Overwrite one block through the page cache: direct I/O would only add alignment rules for a single block. */
static int write_block(struct packs *p, uint32_t pack, uint64_t off, const void *block)
{
	_cleanup_(closep) int fd = -1;
	int r;

	fd = io_open(p->dirfd, pack_name(pack).s, O_WRONLY, 0);
	if (fd < 0)
		return log_errno(fd, "pack %" PRIu32 ": cannot open for repair", pack);
	r = io_pwrite(fd, block, PACK_BLOCK, off);
	if (r == 0)
		r = io_sync(fd);
	return r < 0 ? log_errno(r, "pack %" PRIu32 " offset %" PRIu64 ": cannot repair", pack, off) : 0;
}

int packs_repair_header(struct packs *p, uint32_t pack, enum pack_stream stream)
{
	struct pack_header h = { .pack = pack, .node = p->conf.node, .stream = stream };
	struct pack_header_disk block;

	memcpy(h.store_id, p->conf.store_id, sizeof(h.store_id));
	pack_header_encode(&h, &block);
	return write_block(p, pack, 0, &block);
}

int packs_repair_table(struct packs *p, const struct pack_salvage *s)
{
	struct pack_table t = {
		.chunk_len = s->chunk_len, .nr_chunks = s->nr_chunks, .coding.codec = (enum pack_codec)s->codec
	};
	struct pack_table_disk block;
	int r;

	memcpy(t.fps, s->fps, sizeof(t.fps));
	memcpy(t.coding.part_end, s->parts.end, sizeof(t.coding.part_end));
	memcpy(t.coding.base, s->parts.base, sizeof(t.coding.base));
	if (s->chunk_len == PACK_VARIED)
		memcpy(t.ends, s->ends, sizeof(t.ends));
	pack_table_encode(&t, p->conf.key, s->pack, s->frame, &block);
	r = write_block(p, s->pack, pack_table_off(s->frame), &block);
	if (r == 0)
		pack_places_remove(&p->damaged, s->pack, pack_table_off(s->frame));
	return r;
}

int packs_restore_table(struct packs *p, uint32_t pack, uint32_t frame)
{
	struct pack_table_disk block;
	struct pack_table t;
	struct table_view v;
	int r;

	if (!pack_tables_get(p->tables, pack, frame, 0, PACK_FRAME_BYTES, &v))
		return 0;
	pack_tables_put(p->tables, &v);
	if (v.frame || v.error < 0)
		return 0;
	t = (struct pack_table){ .chunk_len = v.chunk_len, .nr_chunks = v.nr_chunks, .coding = v.coding };
	memcpy(t.fps, v.fps, v.nr_chunks * sizeof(*t.fps));
	if (v.chunk_len == PACK_VARIED)
		memcpy(t.ends, v.ends, v.nr_chunks * sizeof(*t.ends));
	pack_table_encode(&t, p->conf.key, pack, frame, &block);
	r = write_block(p, pack, pack_table_off(frame), &block);
	if (r < 0)
		return r;
	pack_places_remove(&p->damaged, pack, pack_table_off(frame));
	return 1;
}

int packs_wipe_table(struct packs *p, uint32_t pack, uint32_t frame)
{
	static const uint8_t zeros[PACK_BLOCK];
	int r = write_block(p, pack, pack_table_off(frame), zeros);

	if (r == 0)
		pack_places_remove(&p->damaged, pack, pack_table_off(frame));
	return r;
}
