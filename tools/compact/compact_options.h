/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Recoding options, common to ckptfs-compact and ckptfs-analyze. */
#pragma once

#include "base/conf.h"
#include "tools/compact/compact_planner.h"

#define COMPACT_GROUP_MAX 65536u

/* Entries of an option table; `planner` is a struct compact_planner in `type`. */
#define COMPACT_OPTIONS(type, planner)                                                                                \
	{ "scheme", CONF_CHOICE, offsetof(type, planner.scheme), .fallback = "auto", .value = "NAME",                 \
	  .choices = "auto|agnostic|agnostic-block|aware|aware-block",                                                \
	  .help = "how ranks are merged: agnostic, agnostic-block, aware, aware-block or auto" },                     \
	{ "group", CONF_NUMBER, offsetof(type, planner.group), .min = 1, .max = COMPACT_GROUP_MAX,                    \
	  .must = "must be 1 to 65536", .help = "ranks that are merged (default: all of a step)" },                   \
	{ "block", CONF_SIZE, offsetof(type, planner.block), .fallback = "64K", .min = KiB(4),                        \
	  .must = "must be at least 4K", .help = "bytes of each rank in turn, in the -block schemes" },               \
	{ "chain", CONF_PARSED, offsetof(type, planner), .parse = compact_parse_chain, .value = "N",                  \
	  .help = "steps that are coded against each other, 0 to 15 (default: up to 4, while reading one costs no "   \
		  "more than its plain bytes)" },                                                                     \
	{ "budget", CONF_PARSED, offsetof(type, planner), .fallback = "10", .parse = compact_parse_budget,            \
	  .value = "SECONDS", .help = "CPU seconds per GB that coding may take" }

#define COMPACT_PLANNER_DEFAULT { .chain = 4 } /* defaults that the option table lacks */

int compact_parse_chain(const struct conf_key *k, void *conf, const char *value, const char **ret_why);
int compact_parse_budget(const struct conf_key *k, void *conf, const char *value, const char **ret_why);
