/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Decoders of the engine's journal records and notes: whatever decodes must encode to something that decodes to the
 * same. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "store/log/record_format.h"
#include "store/check/scrub_job.h"

static void frames_again(const struct pack_written *w)
{
	struct pack_written got = { 0 };
	struct buf b = BUF_EMPTY;

	assert(w->nr > 0 && w->nr <= PACK_WRITTEN_MAX);
	frames_encode(w, &b);
	assert(frames_decode(b.data, b.len, &got) == 0);
	assert(got.nr == w->nr && memcmp(got.frames, w->frames, w->nr * sizeof(*w->frames)) == 0);
	buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void replace_again(enum record_type type, const struct replace *rp)
{
	struct buf b = BUF_EMPTY;
	struct replace got;

	replace_encode(rp, &b);
	assert(replace_decode(type, b.data, b.len, &got) == 0);
	assert(got.ino == rp->ino && got.size == rp->size && got.off == rp->off && got.len == rp->len && got.nr == rp->nr);
	free(got.x);
	buf_release(&b);
}

static void clone_again(const struct clone *cl)
{
	struct buf b = BUF_EMPTY;
	struct clone got;

	clone_encode(cl, &b);
	assert(clone_decode(b.data, b.len, &got) == 0);
	assert(memcmp(&got, cl, sizeof(got)) == 0);
	buf_release(&b);
}

static void note_again(const struct scrub_state *note)
{
	struct buf b = BUF_EMPTY;
	struct scrub_state got;

	scrub_state_encode(note, &b);
	assert(scrub_state_decode(b.data, b.len, &got) == 0);
	assert(got.pack == note->pack && got.frame == note->frame && got.last_ns == note->last_ns);
	buf_release(&b);
}

static void marks_again(const struct pack_marks *m)
{
	struct buf b = BUF_EMPTY;
	struct pack_marks got;

	assert(m->next_pack > 0);
	marks_encode(m, &b);
	assert(marks_decode(b.data, b.len, &got) == 0);
	assert(memcmp(&got, m, sizeof(got)) == 0);
	buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct pack_written written;
	struct pack_marks marks;
	struct scrub_state note;
	struct replace rp;
	struct clone cl;

	for (enum record_type type = RECORD_REPLACE; type <= RECORD_PATCH; type++) {
		if (replace_decode(type, p, len, &rp) == 0) {
			replace_again(type, &rp);
			free(rp.x);
		}
	}
	if (clone_decode(p, len, &cl) == 0)
		clone_again(&cl);
	if (marks_decode(p, len, &marks) == 0)
		marks_again(&marks);
	if (frames_decode(p, len, &written) == 0)
		frames_again(&written);
	if (scrub_state_decode(p, len, &note) == 0)
		note_again(&note);
	return 0;
}
