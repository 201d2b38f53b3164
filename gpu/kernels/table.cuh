/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of all digests of the record, on the device.
 *
 * Slots are in buckets of 16. The digest selects a bucket; if that is full, the next one is used. One byte of each
 * digest, its tag, is stored separately. So one load of 16 tags shows in which slots of a bucket the digest can be,
 * and whether the search ends, which it does at the first bucket with an empty slot. With linear probing, the longest
 * of thousands of searches would take a hundred dependent loads, and all others would wait for it.
 *
 * A thread takes a slot with one compare-and-swap of its value, (version, chunk). It then writes the tag. The key is
 * written at the commit, or for a whole version at once. The key of a slot entered by the version being taken is never
 * read: the value identifies the chunk, and the log has its digest. So a swap of 64 bits suffices for keys of 128, and
 * no thread waits for another. Of equal chunks, the lowest wins by an atomic minimum.
 *
 * A thread searches older entries for its digest. If there is none, it takes the first empty or dropped slot, starting
 * at the first bucket that has one, or that has an entry of this version with its tag. During this slots are only
 * filled: two threads with the same digest choose the same slot, or the second finds the entry of the first. If a tag
 * is outdated, the swap fails and returns the current value.
 */
#pragma once

#include "gpu/kernels/device.cuh"

static __device__ __forceinline__ uint32_t version_of(uint64_t value)
{
	return (uint32_t)(value >> 32);
}

static __device__ __forceinline__ uint32_t chunk_of(uint64_t value)
{
	return (uint32_t)value;
}

static __device__ __forceinline__ uint64_t value_of(uint32_t version, uint32_t chunk)
{
	return (uint64_t)version << 32 | chunk;
}

static __device__ __forceinline__ uint64_t bucket_of(const struct gpu_table &table, struct digest d)
{
	return __umul64hi(d.lo, table.nr_slots / GPU_BUCKET);
}

static __device__ __forceinline__ uint64_t bucket_after(const struct gpu_table &table, uint64_t bucket)
{
	return bucket + 1 == table.nr_slots / GPU_BUCKET ? 0 : bucket + 1;
}

static __device__ __forceinline__ uint32_t tag_of(struct digest d)
{
	uint32_t tag = (uint32_t)d.hi & 0xff;

	return tag > GPU_SLOT_DROPPED ? tag : tag + 2;
}

static __device__ __forceinline__ uint4 load_tags(const struct gpu_table &table, uint64_t bucket)
{
	return __ldcg((const uint4 *)table.tags + bucket); /* other blocks change them concurrently */
}

/* The slots of a bucket with this tag: bit i for slot i. */
static __device__ __forceinline__ uint32_t slots_with(uint4 tags, uint32_t tag)
{
	uint32_t all = tag * 0x01010101u, ret = 0;
	uint32_t words[4] = { tags.x, tags.y, tags.z, tags.w };

#pragma unroll
	for (int i = 0; i < 4; i++) /* the product gathers the lowest bits of four bytes at bit 24 */
		ret |= ((__vcmpeq4(words[i], all) & 0x01010101u) * 0x01020408u >> 24 & 0xf) << 4 * i;
	return ret;
}

static __device__ __forceinline__ uint64_t value_at(const struct gpu_table &table, uint64_t slot)
{
	return __ldcg((const unsigned long long *)&table.slots[slot].value);
}

/*
 * The first bucket in which a chunk without an older entry may be entered. No earlier bucket has room, or an entry of
 * this version that may be equal. `tags` were loaded some time ago; `own` are such entries in them.
 */
struct vacancy {
	uint64_t bucket;
	uint4 tags;
	uint32_t own;
};

/* The bucket where the search begins. */
static __device__ __forceinline__ struct vacancy vacancy_at(const struct gpu_take &t, struct digest d)
{
	struct vacancy v = { bucket_of(t.table, d) };

	v.tags = load_tags(t.table, v.bucket);
	v.own = slots_with(v.tags, tag_of(d));
	return v;
}

/* Searches one bucket. True: the search is over; `value` is set if the digest was found. */
static __device__ __forceinline__ bool look_into(const struct gpu_take &t, struct digest d, uint64_t bucket, uint4 tags,
						 struct vacancy *v, uint64_t *value)
{
	uint32_t empty = slots_with(tags, GPU_SLOT_EMPTY), own = 0;

	for (uint32_t slots = slots_with(tags, tag_of(d)); slots; slots &= slots - 1) {
		uint64_t slot = bucket * GPU_BUCKET + __ffs(slots) - 1, is = value_at(t.table, slot);
		struct digest key = t.table.slots[slot].key; /* maybe not needed, but in parallel with the value */

		if (version_of(is) == t.number)
			own |= slots & -slots;
		else if (same_digest(key, d)) {
			*value = is;
			return true;
		}
	}
	if ((empty | own | slots_with(tags, GPU_SLOT_DROPPED)) && v->bucket == UINT64_MAX) {
		v->bucket = bucket;
		v->tags = tags;
		v->own = own;
	}
	return empty != 0;
}

/*
 * Returns the value of an entry of an older version; 0: there is none, and `ret` is set, if there is room. Searches two
 * buckets together if one access can load the tags of both.
 */
static __device__ uint64_t find_older(const struct gpu_take &t, struct digest d, struct vacancy *ret)
{
	uint64_t bucket = t.table.nr_slots > 0 ? bucket_of(t.table, d) : 0, value = 0;

	ret->bucket = UINT64_MAX;
	for (uint64_t i = 0; i < t.table.nr_slots / GPU_BUCKET; i++) {
		uint4 tags = load_tags(t.table, bucket), second;
		bool pair = bucket % 2 == 0 && bucket + 1 < t.table.nr_slots / GPU_BUCKET;

		if (pair)
			second = load_tags(t.table, bucket + 1);
		if (look_into(t, d, bucket, tags, ret, &value) ||
		    (pair && look_into(t, d, ++bucket, second, ret, &value)))
			break;
		bucket = bucket_after(t.table, bucket);
	}
	return value;
}

/* Returns the slot of an equal chunk of this version, plus one; 0: none. Call it after all have been entered. */
static __device__ uint64_t find_own(const struct gpu_take &t, struct digest d)
{
	uint64_t bucket = t.table.nr_slots > 0 ? bucket_of(t.table, d) : 0;

	for (uint64_t i = 0; i < t.table.nr_slots / GPU_BUCKET; i++, bucket = bucket_after(t.table, bucket)) {
		uint4 tags = load_tags(t.table, bucket);

		for (uint32_t slots = slots_with(tags, tag_of(d)); slots; slots &= slots - 1) {
			uint64_t slot = bucket * GPU_BUCKET + __ffs(slots) - 1, value = value_at(t.table, slot);

			if (version_of(value) == t.number && same_digest(changed_digest(t, chunk_of(value)), d))
				return slot + 1;
		}
		if (slots_with(tags, GPU_SLOT_EMPTY))
			break;
	}
	return 0;
}

/* Counts of one thread, summed up at the end. */
struct tally {
	uint32_t unknown, entered, reclaimed, equal;
};

/* Enters a chunk without an older entry. Returns the slot, which may be that of an equal chunk. */
static __device__ uint64_t enter_chunk(const struct gpu_take &t, struct digest d, uint32_t chunk, struct vacancy v,
				       struct tally *tally)
{
	uint64_t bucket = v.bucket, own = value_of(t.number, chunk);
	uint32_t tag = tag_of(d), same = v.own; /* other slots with this tag are older, and do not match */
	uint4 tags = v.tags;

	/* Terminates: there are more free slots than chunks to enter. */
	for (;;) {
		uint32_t empty = slots_with(tags, GPU_SLOT_EMPTY), dropped = slots_with(tags, GPU_SLOT_DROPPED);

		for (uint32_t slots = empty | dropped | same; slots; slots &= slots - 1) {
			uint32_t i = __ffs(slots) - 1;
			uint64_t slot = bucket * GPU_BUCKET + i, value;
			unsigned long long *place = (unsigned long long *)&t.table.slots[slot].value;

			if ((empty | dropped) >> i & 1) {
				uint64_t is_free = empty >> i & 1 ? GPU_SLOT_EMPTY : GPU_SLOT_DROPPED;

				value = atomicCAS(place, is_free, own);
				if (value == is_free) {
					if (t.whole)
						t.table.slots[slot].key = d;
					t.table.tags[slot] = (uint8_t)tag;
					tally->entered++;
					tally->reclaimed += is_free == GPU_SLOT_DROPPED;
					return slot;
				}
			} else
				value = value_at(t.table, slot);
			if (version_of(value) != t.number || !same_digest(changed_digest(t, chunk_of(value)), d))
				continue;
			if (own < value)
				atomicMin(place, own);
			tally->equal++;
			return slot;
		}
		bucket = bucket_after(t.table, bucket);
		tags = load_tags(t.table, bucket);
		same = slots_with(tags, tag);
	}
}

/* Adds a digest that is not in the table, which must have no dropped slots; no other thread adds the same digest. */
static __device__ void put_back(const struct gpu_table &table, struct digest d, uint64_t value)
{
	for (uint64_t bucket = bucket_of(table, d);; bucket = bucket_after(table, bucket)) {
		uint32_t slots = slots_with(load_tags(table, bucket), GPU_SLOT_EMPTY);

		for (; slots; slots &= slots - 1) {
			uint64_t slot = bucket * GPU_BUCKET + __ffs(slots) - 1;

			if (atomicCAS((unsigned long long *)&table.slots[slot].value, GPU_SLOT_EMPTY, value) !=
			    GPU_SLOT_EMPTY)
				continue;
			table.slots[slot].key = d;
			table.tags[slot] = (uint8_t)tag_of(d);
			return;
		}
	}
}
