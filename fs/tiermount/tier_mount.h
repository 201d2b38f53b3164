/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * mount.ckptfs with the URL of a tier in place of a store: a separate read-only filesystem, without an engine and without
 * a local store (docs/decisions/tier.md, "Mount without a store").
 */
#pragma once

#include "fs/daemonize.h"

struct options;

/* `o->store` is the URL of a tier. Runs the daemon until it is unmounted. */
enum exit_status tier_mount(struct options *o);
