/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Joint commits: the last one, after a crash. */
#pragma once

#include <stdint.h>

struct journal;
struct packs_conf;

/*
 * Drops the last group of the journal if it belongs to a joint commit and frames of it are missing. Else makes its
 * frames durable. Groups up to `known` were acknowledged. With conf->read_only nothing is written, and the journal only
 * ignores the group. Before the packs are opened, and before the journal is read. 1: dropped; 0; <0, logged.
 */
int joint_settle(struct journal *j, uint64_t known, int packs_dirfd, const struct packs_conf *conf);
