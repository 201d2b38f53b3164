/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Garbage collection of a tier. Writers, readers and other collectors run at the same time, and may pause for any time
 * before any request. There are no clocks, leases or locks. Lists are used to find garbage, and never to find what is
 * in use.
 *
 * There are two kinds of logs. A log is a sequence of objects that are numbered without gaps. An entry is appended by
 * putting it as a new object behind the last one. A process that appends to the log of the tier has read all entries
 * before.
 *   gc/<n>              the log of the tier: stores that join, and generations. Entries are never deleted
 *   sealed/<store>/<n>  the log of a store: its manifests, and fences of generations
 *
 * A generation has marks: for each store, the last number that is used (its base) and the manifests up to it that are
 * kept; and the packs that no kept manifest names, pending ones (for the first time) and dropped ones (as in the
 * generation before). A manifest up to the base of its store that is not among the kept ones is not valid. It does not
 * matter whether its object exists.
 *
 * A collection:
 *   1. reads the log and all valid manifests, by their numbers, of each store up to the first free number. Ends if one
 *      is missing that is listed, that the previous generation kept, or that a later one follows: otherwise it would be
 *      removed unread. A directory may lack names for a while, as when one of its servers is down
 *   2. lists the packs, and finds those that no kept manifest names. The packs that kept ones need must exist
 *   3. puts the marks                           crash: an object that no entry names; a later collection deletes it
 *   4. appends the generation to the log        REMOVED: checkpoints that are not kept are not shown any more
 *                                               crash: as a collection that deletes nothing; the next one continues
 *   5. puts a fence at the first free number of each store, and reads the manifests before it that are new. Dropped packs
 *      that these name are needed again         crash: fences without effect
 *   6. reads new entries of the log: if there is a later generation, it ends here
 *   7. deletes manifests and fences that are not valid, dropped packs, old marks, and remains of interrupted puts
 *                                               crash: the next collection deletes the others
 *
 * A writer joins in the log before it puts its first manifest. It reads generations in the log when it is opened, when
 * a flush begins, when it finds a fence in the place of its manifest, and after it has put a manifest. It puts no
 * manifest that names a pack dropped in a generation that it has read.
 *
 * Why a pack that is deleted is not needed. Let it be dropped in generation G.
 *   - A store that joined before G has a fence of G. A manifest before it was read in step 1 or 5, and names no deleted
 *     pack. A writer that puts a manifest behind it has read the fence or a later entry, and G before that.
 *   - A store that joined after G has read G by then.
 *   - Such a writer does not share the pack, and does not put it again: the number in the tables of a pack depends on
 *     the last generation that its writer had read, so a later pack with the same chunks has another name. A request to
 *     delete the old one does no harm, however late it arrives.
 *   - Step 6 reads the log after all manifests were read. Without a later generation, no manifest before the fences was
 *     removed in the meantime. So none of them named the pack, and no writer can share the pack through one of them.
 *
 * Why nothing is committed at a number whose object was deleted. Numbers up to a base have all been used. A writer that
 * still puts a manifest at one finds the generation in the log afterwards, and does not report the flush as done.
 * Readers read the log after the list of manifests, and do not show it.
 *
 * Why a reader of a kept checkpoint gets no error. The packs of a valid manifest are never deleted. Those of a removed
 * one stay until the next collection.
 *
 * Why flushes make progress. A new pack without a manifest is pending in the next generation, and dropped in the one
 * after that. A flush during which two generations begin may have to send chunks again.
 *
 * A manifest that cannot be read may name any pack: then nothing is deleted.
 */
#include "store/tier/collect/tier_collect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/collect/collect_state.h"
#include "store/tier/tier.h"

bool collector_step(struct tier_collector *c, const char *what, uint64_t done, uint64_t total)
{
	return !c->conf.step || c->conf.step(c->conf.userdata, what, done, total);
}

int collector_complain(const struct tier_collector *c, const char *name, int r)
{
	const char *where = tier_where(c->tier);

	if (r == -EBADMSG || r == -EFBIG)
		return log_errno(
			-EBADMSG,
			"tier %s: %s: the manifest is damaged, so the packs that it needs are unknown, and nothing is deleted. "
			"Restore this object. If that fails, delete it, and drop its checkpoint with --forget-missing",
			where, name);
	if (r == -EOPNOTSUPP)
		return log_errno(r, "tier %s: %s: written by a newer version: collect with that version", where, name);
	return r;
}

int collector_busy(const struct tier_collector *c)
{
	return log_errno(-EBUSY, "tier %s: another collection has begun: run this one again when that one has ended",
			 tier_where(c->tier));
}

int collector_run_all(struct tier_collector *c, struct tier_request *v, size_t nr, const char *what)
{
	int r = 0;

	for (size_t i = 0, done = 0; done < nr;) {
		if (i < nr && tier_in_flight(c->queue) < COLLECT_IN_FLIGHT && r == 0) {
			tier_start(c->queue, &v[i++]);
			continue;
		}
		if (!tier_next(c->queue))
			break; /* cancelled */
		done++;
		if (r == 0 && !collector_step(c, what, done, nr))
			r = -ECANCELED;
	}
	return r;
}

int collector_get_manifest(struct tier_collector *c, const uint8_t store[TIER_ID_LEN], uint64_t number,
			   struct buf *bytes, struct tier_manifest *ret)
{
	struct tier_object_name name = tier_manifest_name(store, number);
	int r;

	buf_clear(bytes);
	r = tier_get_all(c->tier, name.s, TIER_MANIFEST_MAX, bytes);
	if (r == 0)
		r = tier_manifest_decode(bytes->data, bytes->len, ret);
	if (r == 0 && (ret->number != number || memcmp(ret->store, store, TIER_ID_LEN) != 0))
		r = -EBADMSG;
	return r == -ENODATA || r == -ENOENT ? r : collector_complain(c, name.s, r);
}

int tier_collector_open(struct tier *t, const struct tier_collect_conf *conf, struct tier_collector **ret)
{
	_cleanup_(tier_collector_closep) struct tier_collector *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->tier = c->log.tier = t;
	c->conf = *conf;
	r = tier_queue_new(t, &c->queue);
	if (r == 0)
		r = tier_list_all(t, TIER_SEALED_PREFIX, &c->names);
	if (r == 0)
		r = tier_log_read(t, &c->log);
	c->generation = c->log.generation;
	if (r == 0)
		r = collect_read_manifests(c);
	if (r == 0)
		*ret = TAKE(c);
	return r;
}

void tier_collector_close(struct tier_collector *c)
{
	if (!c)
		return;
	tier_queue_free(c->queue);
	for (size_t i = 0; i < c->nr_sealed; i++)
		free(c->sealed[i].path);
	free(c->sealed);
	free(c->stores);
	free(c->needed.v);
	free(c->relied.v);
	free(c->removed.v);
	free(c->dropped.v);
	free(c->pending.v);
	buf_release(&c->names);
	tier_log_release(&c->log);
	free(c);
}

void tier_collector_closep(struct tier_collector **c)
{
	tier_collector_close(*c);
}

struct tier_sealed *tier_collector_sealed(struct tier_collector *c, size_t *ret_nr)
{
	*ret_nr = c->nr_sealed;
	return c->sealed;
}

void tier_collector_figures(const struct tier_collector *c, struct tier_collect_figures *ret)
{
	*ret = c->figures;
}
