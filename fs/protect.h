/*
 * Sealed directories are also with another node, or with several that have the catalog and parity of what only one has
 * (protect=xor, fs/stripes.h): what is sealed here goes to this node's partner (fs/push.h), by itself, as soon as an
 * agent is there, and what is not sealed any more goes from there. A thread does that; it is noted which node has what
 * (index/guards.h).
 *
 * The partner is the next node in the order of store ids, and around, that is on another host. Nodes that come later
 * may change that for what is sealed later; what a node has stays with it for as long as it takes part. What another
 * node has counts also while it is away, until protect_heal().
 *
 * With compact_group= it goes to the collectors of this node's group instead, and this node lets go what it had
 * (fs/hand_over.h). With one collector that is no protection.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fs;
struct options;
struct protect;
struct service;
struct service_world;

enum protect_mode {
	PROTECT_NONE,
	PROTECT_PARTNER,
	PROTECT_XOR,
	/* as in the table of options */ PROTECT_COLLECT /* compact_group= */
};
#define PROTECT_GROUP_MAX 7u

struct protect_status {
	enum protect_mode mode;
	uint64_t nr_sealed, nr_protected; /* directories of this store, when it was last looked */
	uint64_t nr_copies; /* of those of lost nodes here, others have now, too */
	uint64_t chunks, bytes; /* sent since the mount */
	bool is_busy;
	bool is_alone; /* no agent is there */
	int error; /* of the last directory that could not be protected; 0: all are, or nobody has tried yet */
	uint64_t nr_healed; /* how often protect_heal() has come to its end */
};

/* A directory that could not be protected. */
struct protect_failure {
	int error; /* -EIO: no node that takes part has all of it */
	char node[64], path[4096]; /* whose it is, and where there */
};

int protect_new(struct fs *fs, const struct options *o, struct protect **ret); /* borrows the first */
/* NULL: the store is of no cluster, and nothing happens */
int protect_start(struct protect *p, struct service *service);
/* before the service does; what is under way is left, and done by the next mount. NULL is fine */
void protect_stop(struct protect *p);
void protect_free(struct protect *p); /* NULL is fine */

/* something was sealed, or is not any more, or nodes have come. Returns at once */
void protect_wake(struct protect *p);
/*
 * Nodes that do not take part now are lost: what they had is had by others again. All that is sealed here is looked at,
 * and copies of what they have sealed go to another node, too. Returns at once with its number, which nr_healed reaches
 * when it has come to its end: then all is done but for what protect_failed() tells. -EOPNOTSUPP: the store is of no
 * cluster; -ENOTCONN: no agent is there.
 */
int protect_heal(struct protect *p, uint64_t *ret);
/* Of those that could not be when it was last looked, the first PROTECT_FAILED_MAX: 1/0 */
#define PROTECT_FAILED_MAX 64u
int protect_failed(struct protect *p, uint32_t number, struct protect_failure *ret);
/* A node that will not come back: what it had goes to another one, and what of its directories no node has any more is
 * no failure. -ENOENT: nobody knows it; -EBUSY: it takes part; -EOPNOTSUPP */
int protect_forget(struct protect *p, const char *name);
/*
 * A sealed directory: 0, another node has all of it. -EAGAIN: not yet; -EOPNOTSUPP: protect=none; -ENODATA: not sealed;
 * -ENOTCONN: no agent is there; -EHOSTUNREACH: no node is on another host; -EHOSTDOWN: who has it does not take part,
 * and may be lost; others: what the last attempt came to. There will be another one in each of these cases but the
 * first three and that of -EHOSTDOWN, which protect_heal() is for.
 */
int protect_state(struct protect *p, uint64_t dir);
/* The same of compact_group=: 0, its collectors have it, and this node has let go what it had, unless it is one.
 * -EOPNOTSUPP: without that option. */
int protect_collected(struct protect *p, uint64_t dir);
void protect_status(struct protect *p, struct protect_status *ret);

/* The partner of a node, for one that has its directory: of a world its number. 0; -EHOSTUNREACH: none. Pure. */
int protect_partner(const struct service_world *w, const uint8_t *origin, uint32_t *ret);
/* protect=xor: up to PROTECT_GROUP_MAX of them, each on a host of its own. How many; 0: none. */
uint32_t protect_group(const struct service_world *w, const uint8_t *origin, uint32_t ret[PROTECT_GROUP_MAX]);
