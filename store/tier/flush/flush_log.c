/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What the log of the tier tells a writer: which packs collections have dropped, and whether it is the only one. */
#include <errno.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/flush/flush_state.h"

/* Adopts the marks of a generation. No pack is open. */
void writer_apply_generation(void *userdata)
{
	struct tier_writer *w = userdata;
	const struct tier_marks *m = &w->log.marks;
	const struct tier_store_marks *s = tier_marks_store(m, w->conf.store);
	bool any = false;
	size_t nr = 0;

	for (uint32_t i = 0; i < w->nr_packs; i++)
		if (!w->is_dropped[i] && tier_id_is_in(m->dropped, m->nr_dropped, w->packs[i].id))
			any = w->is_dropped[i] = true;
	if (any)
		tier_known_forget(&w->known, w->is_dropped);
	if (!s)
		return;
	w->number = MAX(w->number, s->base + 1);
	if (s->last > w->last.number) {
		w->last = (struct tier_written){ .number = s->last, .ino = s->last_ino, .sealed_ns = s->last_sealed_ns };
		w->is_overtaken = true;
	}
	for (size_t i = 0; i < w->nr_seals; i++)
		if (tier_log_keeps(&w->log, w->conf.store, w->seals[i].number))
			w->seals[nr++] = w->seals[i];
	w->nr_seals = nr;
}

int writer_another_machine(const struct tier_writer *w, const char *name)
{
	return log_errno(-ENOTUNIQ,
			 "tier %s: %s: another machine writes for this store: this one stops flushing. Unmount one of them",
			 tier_where(w->tier), name);
}

int writer_read_generations(struct tier_writer *w)
{
	int r = tier_log_follow(&w->log, writer_apply_generation, w);

	if (r == -EBADMSG)
		return -EIO; /* the log is damaged, and not what is flushed */
	if (r == 0 && w->is_overtaken)
		return writer_another_machine(w, tier_manifest_name(w->conf.store, w->last.number).s);
	if (r == -ESTALE)
		log_notice("tier %s: several collections have ended since the log was read: reading it again",
			   tier_where(w->tier));
	return r;
}
