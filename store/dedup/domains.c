/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Deduplication domains: groups of files that share chunks (docs/decisions/fingerprints.md, "Deduplication domains").
 *
 * A store is created with a single domain, one per group, or one per user. New bytes are fingerprinted in the domain of
 * the file's owner at that moment, so no lookup in dedup.c finds chunks of another domain. Clones, patches and the
 * search for moved bytes share without looking up fingerprints, so they check the domain here. When a file changes its
 * owner, existing bytes stay in the domain they were written in.
 */
#include "store/dedup/domains.h"

#include <errno.h>

#include "index/namespace_table.h"
#include "store/engine_state.h"
#include "store/file/content.h"

#define NO_OWNER UINT32_MAX /* not a valid user or group id: (uid_t)-1 */

static int domain_of(struct content *c, struct fp_domain *ret)
{
	struct fp_domain d = { .kind = superblock_domains(&content_engine(c)->dirs.sb) };
	struct ns_inode in;
	int r = d.kind == FP_OF_ALL ? 0 : ns_get_inode(content_engine(c)->db, content_ino(c), &in);

	if (r < 0)
		return r;
	if (d.kind != FP_OF_ALL)
		d.id = r == 0 ? NO_OWNER : d.kind == FP_OF_USER ? in.uid : in.gid;
	*ret = d;
	return 0;
}

int content_tweak(struct content *c, struct fp *ret)
{
	struct fp_domain d;
	int r = domain_of(c, &d);

	if (r == 0)
		*ret = fp_tweak(&content_engine(c)->key, d);
	return r;
}

int content_same_domain(struct content *a, struct content *b)
{
	struct fp_domain of_a, of_b;
	int r;

	if (a == b)
		return 1;
	r = domain_of(a, &of_a);
	if (r == 0)
		r = domain_of(b, &of_b);
	return r < 0 ? r : of_a.id == of_b.id;
}

int content_may_share(struct content *from, struct content *to)
{
	int r = content_same_domain(from, to);

	return r < 0 ? r : r > 0 ? 0 : -EXDEV;
}
