/*
 * What the command line and `-o` of mount.ckptfs say: one table of our own options (defaults and
 * --help come from it too), one of the kernel's that are passed on, one of those that only
 * mount(8), fstab or systemd mean anything by.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "store/engine/engine.h"

struct options {
	struct engine_conf engine;
	char *cluster, *agent, *log; /* NULL: not given */
	uint64_t replicas;
	int protect; /* enum protect_mode */
	int compact; /* enum aggregator_mode */
	uint64_t compact_budget; /* CPU seconds for each GB */
	char *compact_names; /* a file of rules; NULL: none */
	uint64_t compact_group; /* nodes; 0: each for itself */
	char *autoseal; /* conventions (autoseal.h); NULL: none */
	char *metrics; /* where to answer HTTP; NULL: nowhere */
	char *compress, *cdc; /* as given; engine.compress and engine.cdc are what they mean */
	int chunking, log_level;
	int hash; /* enum fp_kind, 0: as stored */
	int dedup; /* 1 + enum fp_domain_kind, 0: as stored */
	bool noatime, sync, nonempty, private; /* private: only the user who mounted may look */
	struct buf kernel; /* "nosuid,nodev": what goes to mount(2), no final NUL */

	const char *store, *mountpoint; /* borrowed from argv */
	bool sloppy, fake, verbose, foreground, help, version;
};

int options_init(struct options *o);
void options_release(struct options *o);
/* The command line. -EINVAL: the reason has been printed. With help or version set the rest was not looked at. */
int options_parse(struct options *o, int argc, char *argv[]);
/* One comma-separated list as after -o. */
int options_parse_list(struct options *o, const char *list);
void options_help(FILE *to);
