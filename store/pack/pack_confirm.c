/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Confirms frames that a crash may have lost: those of a joint commit, which were synced together with its group of the
 * journal (store/log/joint.c).
 *
 * A frame is intact if its table has the seal that the commit names, and each of its chunks has its fingerprint. The
 * seal distinguishes it from an older frame at the same place. If the process died before its sync or after a failed
 * one, the frames may be readable only from a cache. So they are written again, as they are, and synced. Crash: the
 * frames are intact or not, as before.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

static int write_again(struct packs *p, const struct pack_buffer *stored, const struct pack_table *t,
		       const struct pack_seal *f)
{
	struct pack_cuts cuts = pack_table_cuts(t);
	uint64_t failures = io_sync_failures();
	_cleanup_(closep) int fd = -1;
	struct pack_name name = pack_name(f->pack);
	uint32_t len;
	int r;

	fd = io_open(p->dirfd, name.s, O_RDWR, 0);
	if (fd < 0)
		return log_errno(fd, "pack %" PRIu32 ": cannot open", f->pack);
	len = PACK_BLOCK + (uint32_t)round_up(pack_stored_len(&t->coding, pack_cut_total(&cuts)), PACK_BLOCK);
	r = io_pwrite(fd, stored, len, pack_table_off(f->frame));
	if (r == 0)
		r = io_sync_since(fd, failures);
	return r < 0 ? log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": cannot make durable", f->pack, f->frame) : 0;
}

/* 1/0/<0 */
static int confirm(struct packs *p, struct pack_buffer *stored, const struct pack_seal *f, bool read_only)
{
	struct pack_file *file;
	struct pack_table t;
	int r = packs_file_get(p, f->pack, &file);

	if (r <= 0)
		return r == -ENOMEM ? r : 0;
	mutex_lock(&p->repair_lock);
	r = packs_read_intact(p, file, f->frame, stored, &t);
	mutex_unlock(&p->repair_lock);
	pack_file_put(p->files, file);
	if (r <= 0 || le64_get(stored->table.seal) != f->seal)
		return r == -ENOMEM ? r : 0; /* unreadable: not there */
	if (read_only)
		return 1;
	r = write_again(p, stored, &t, f);
	return r < 0 ? r : 1;
}

int packs_confirm(int dirfd, const struct packs_conf *conf, const struct pack_written *w)
{
	struct packs_conf opened = *conf;
	struct pack_buffer *stored;
	struct packs *p;
	int r;

	opened.read_only = true; /* removes and cuts nothing */
	r = packs_open(dirfd, &opened, &w->marks, &p);
	if (r < 0)
		return r;
	stored = pack_buffer_get(&p->buffers);
	r = stored ? 1 : -ENOMEM;
	for (unsigned i = 0; i < w->nr && r > 0; i++)
		r = confirm(p, stored, &w->frames[i], conf->read_only);
	pack_buffer_put(&p->buffers, stored);
	packs_close(p);
	return r;
}
