/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * mount.ckptfs with the address of a tier in place of a store: a read-only filesystem of its own, without an engine and
 * without a local store (docs/decisions/tier.md, "Mount without a store").
 */
#pragma once

#include "fs/daemonize.h"

struct options;

/* The options name a tier. Runs the daemon until it is unmounted. */
enum exit_status tier_mount(struct options *o);
