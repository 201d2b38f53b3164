/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Parses the command line and `-o` of mount.ckptfs. There are three tables: our own options (also the source of
 * defaults and --help), kernel options that are passed on, and options that only mean something to mount(8), fstab or
 * systemd.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "store/engine.h"

/* How sealed checkpoints are protected against the loss of this node (mpi-agent/daemon/replica/protect.h). */
enum protect_mode {
	PROTECT_NONE,
	PROTECT_PARTNER,
	PROTECT_XOR,
	/* those above as in the table of options */ PROTECT_GATHER /* compact_group= */
};

struct options {
	struct engine_conf engine;
	char *cluster, *agent, *log; /* NULL: not given */
	uint64_t replicas;
	int protect; /* enum protect_mode */
	int compact; /* enum aggregator_mode */
	uint64_t compact_budget; /* CPU seconds per GB */
	char *compact_names; /* file of rules; NULL: none */
	uint64_t compact_group; /* nodes; 0: each node by itself */
	char *autoseal; /* conventions (autoseal.h); NULL: none */
	char *metrics; /* address to answer HTTP at; NULL: none */
	char *tier, *tier_config; /* URL; file of credentials; NULL: none */
	uint64_t tier_rate, tier_cache; /* bytes per second, 0: no limit; bytes of memory */
	uint64_t tier_parallel; /* requests in flight; 0: defaults */
	bool tier_takeover;
	char *compress, *cdc; /* as given; parsed into engine.compress and engine.cdc */
	int chunking, log_level;
	int hash; /* enum fp_kind, 0: as stored */
	int dedup; /* 1 + enum fp_domain_kind, 0: as stored */
	uint64_t tier_timeout_ns; /* of a mounted tier */
	bool noatime, nodiratime, sync, writeback, nonempty, private; /* private: only the mounting user has access */
	struct buf kernel; /* "nosuid,nodev": for mount(2), no final NUL */
	struct buf own; /* "cache=64M,verify": our own options as given, no final NUL */
	struct buf flags; /* of a remount: all other options in their order, no final NUL */
	struct buf lists; /* of -o, as given */
	bool ignored; /* options that have no effect */
	bool remount; /* change flags of the existing mount */

	const char *store, *mountpoint; /* borrowed from argv */
	bool is_tier; /* `store` is the address of a tier, to be mounted by itself (fs/tiermount/tier_mount.h) */
	bool sloppy, fake, verbose, foreground;
};

int options_init(struct options *o);
void options_release(struct options *o);
/* Parses the command line. 1: --help or --version has been printed; -EINVAL: the reason has been printed. */
int options_parse(struct options *o, int argc, char *argv[]);
/* One comma-separated list as after -o. */
int options_parse_list(struct options *o, const char *list);
/*
 * For libfuse: "subtype=ckptfs,...", with a zero byte. Mounts by root are accessible to all users unless `private` is
 * given, as with any filesystem; the kernel checks permissions either way. Other users may have stored set-user-ID programs and
 * devices in a tier, so mounts of a tier require explicit `suid` and `dev`.
 */
int options_for_kernel(const struct options *o, const char *source, bool read_only, struct buf *ret);
