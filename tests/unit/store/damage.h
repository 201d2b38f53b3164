/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Damage to the packs of a store, behind the back of its engine, where a chunk or a part of a frame lies. */
#pragma once

#include "store/pack/pack_format.h"
#include "tests/unit/store/rig.h"

int damage_open(struct rig *rig, uint32_t pack); /* to read and write; caller closes */
bool damage_table(struct rig *rig, uint32_t pack, uint32_t frame, struct pack_table *ret); /* false: none */
void damage_byte(struct rig *rig, uint32_t pack, uint64_t off); /* a second time: it is well again */
void damage_chunk(struct rig *rig, uint32_t pack, uint32_t frame, uint32_t i); /* of a plain frame, as damage_byte() */
/* The middle of what a part of a compressed frame takes becomes something else. Returns how many chunks lie in it. */
uint32_t damage_part(struct rig *rig, uint32_t pack, uint32_t frame, uint32_t part);
