/*
 * Domains: whose chunks are shared with whose (docs/decisions/044-domains.md).
 *
 * A store is made with one (all share), one per group or one per user. New bytes are fingerprinted in the domain of
 * whoever owns the file at that moment, so none of the questions of dedup.c finds what others have stored. Clones,
 * patches and the search for bytes that have moved share without asking for fingerprints: they ask here. Bytes stay in
 * the domain they were written in when the file gets another owner.
 */
#include <errno.h>

#include "index/namespace.h"
#include "store/engine/engine_internal.h"

#define NOBODY UINT32_MAX /* no user and no group has this number: (uid_t)-1 */

static int domain_of(struct content *c, struct fp_domain *ret)
{
	struct fp_domain d = { .kind = superblock_domains(&c->e->dirs.sb) };
	struct ns_inode in;
	int r = d.kind == FP_OF_ALL ? 0 : ns_get_inode(c->e->db, c->ino, &in);

	if (r < 0)
		return r;
	if (d.kind != FP_OF_ALL)
		d.id = r == 0 ? NOBODY : d.kind == FP_OF_USER ? in.uid : in.gid;
	*ret = d;
	return 0;
}

int content_tweak(struct content *c, struct fp *ret)
{
	struct fp_domain d;
	int r = domain_of(c, &d);

	if (r == 0)
		*ret = fp_tweak(&c->e->key, d);
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
