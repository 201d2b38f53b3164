/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a tier takes: objects and bytes by kind, by store and by checkpoint. Reads all manifests and lists all objects,
 * but reads no content of packs. Memory: about 100 bytes for each pack, the list of checkpoints, one page of the list
 * of objects, and the manifests that are being read.
 */
#pragma once

#include <stdbool.h>

#include "tools/tier/tier_access.h"

/* -EBADMSG: a manifest is damaged, and its packs are not in the figures. */
int tier_usage(struct tier_access *a, bool json);
