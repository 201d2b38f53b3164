/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/dispatch/subcommands.h"

#include <stdbool.h>
#include <string.h>

#include "base/command.h"

const struct subcommand subcommands[] = {
	{ "mount", "mount a store, and create it if it does not exist", .group = "Filesystems",
	  .program = "mount.ckptfs", .section = "8" },
	{ "umount", "unmount, and wait until everything is durable", .program = "umount.ckptfs", .section = "8",
	  .aliases = "unmount eject" },
	{ "init", "create a store, and set what cannot be changed later", .program = "ckptfs-init", .section = "1",
	  .aliases = "create format mkfs new" },
	{ "stat", "show what is stored and saved: mounts, files, directories", .program = "ckptfs-stat", .section = "1",
	  .aliases = "df du info show status usage" },

	{ "seal", "make a directory durable, then immutable: a complete checkpoint", .group = "Sealed checkpoints",
	  .program = "ckptfs-seal", .section = "1", .aliases = "commit freeze snapshot unseal" },
	{ "list", "list sealed checkpoints", .program = "ckptfs-stat", .arguments = { "--sealed" }, .section = "1",
	  .aliases = "ls snapshots" },
	{ "verify", "compare a sealed checkpoint with what was sealed", .program = "ckptfs-stat",
	  .arguments = { "--verify" }, .section = "1" },
	{ "restart", "print the path of the newest sealed checkpoint that verifies", .program = "ckptfs-restart-path",
	  .section = "1", .aliases = "latest newest restore resume" },
	{ "wait", "wait until another node has a replica of a sealed checkpoint", .program = "ckptfs-seal",
	  .arguments = { "--no-seal", "--wait=replicated" }, .section = "1", .aliases = "sync" },
	{ "prune", "remove old sealed checkpoints by what is to be kept", .program = "ckptfs-gc",
	  .arguments = { "--prune" }, .section = "1", .aliases = "delete expire forget remove retain rm" },
	{ "tier", "list, verify or restore the sealed checkpoints of a tier, without a mount", .program = "ckptfs-tier", .section = "1",
	  .aliases = "bucket object remote s3" },

	{ "gc", "report unreferenced space, or free it", .group = "Stores", .program = "ckptfs-gc", .section = "1",
	  .aliases = "collect trim" },
	{ "scrub", "read everything and repair what can be repaired, while mounted", .program = "ckptfs-scrub",
	  .section = "1" },
	{ "fsck", "check and repair a store that is not mounted", .program = "fsck.ckptfs", .section = "8",
	  .aliases = "check repair" },
	{ "compact", "recode the variables of sealed checkpoints", .program = "ckptfs-compact", .section = "1",
	  .aliases = "compress recode" },

	{ "diff", "compare two checkpoints", .group = "Checkpoints", .program = "ckptfs-diff", .section = "1",
	  .aliases = "cmp compare" },
	{ "analyze", "estimate what ckptfs would save on existing checkpoints", .program = "ckptfs-analyze",
	  .section = "1", .aliases = "analyse estimate" },
	{ "run", "run a program of a job with a mount of its own", .program = "ckptfs-run", .section = "1",
	  .aliases = "exec job" },

	{ "doctor", "check this machine, mounts and stores, and say what to do", .group = "Help",
	  .program = "ckptfs-doctor", .section = "1", .aliases = "diagnose health monitor" },
	{ "version", "print the versions of ckptfs and of what it was built with",
	  .run = subcommand_version },
	{ "help", "list the commands, or open the manual page of one", .run = subcommand_help, .aliases = "man" },
	{ .name = NULL },
};

const struct subcommand *subcommand_find(const char *name)
{
	for (const struct subcommand *c = subcommands; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

static bool is_alias(const char *aliases, const char *word)
{
	size_t len = strlen(word);

	while (aliases && *aliases) {
		size_t n = strcspn(aliases, " ");

		if (n == len && memcmp(aliases, word, n) == 0)
			return true;
		aliases += n + strspn(aliases + n, " ");
	}
	return false;
}

const struct subcommand *subcommand_nearest(const char *word)
{
	struct nearest n = { .word = word };

	for (const struct subcommand *c = subcommands; c->name; c++)
		if (is_alias(c->aliases, word))
			return c;
	for (const struct subcommand *c = subcommands; c->name; c++)
		nearest_offer(&n, c->name);
	return n.name ? subcommand_find(n.name) : NULL;
}
