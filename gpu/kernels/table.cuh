/*
 * The table of all digests of the record, on the device.
 *
 * Slots are in buckets of 16. A digest goes into the bucket that it points to, or if that is full into the next one; a
 * byte of it, its tag, is kept apart, so that one load tells where in a bucket it can be, and whether the search is
 * over: at the first bucket that has an empty slot. Probing one slot after the other, the longest of thousands of
 * searches takes a hundred dependent loads, and all wait for that one.
 *
 * A slot is taken by one compare-and-swap of its value, (version, chunk); its tag is written afterwards, its key when
 * the version is committed, unless that is a whole one. The key of a slot entered by the version being taken is never
 * read: the value identifies the chunk, and the log already has its digest. So 64 bits are swapped where 128 are
 * compared, and no thread waits for another. Of equal chunks the lowest wins by an atomic minimum.
 *
 * A thread looks for its digest among older entries; if it is not there, it takes the first slot that is empty or was
 * dropped, from the bucket on where it has seen one or an entry of this version with its tag. Slots are only filled
 * meanwhile: two threads with the same digest come to the same slot, or the second finds what the first has entered. A
 * tag may be too old: then the swap fails, and says what is there now.
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
	return __ldcg((const uint4 *)table.tags + bucket); /* others are changing them */
}

/* Which of a bucket's tags are this one: bit i for slot i. */
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
 * From where a chunk that no older version has may be entered: no bucket before has room, or an entry of this version
 * that may be the same. `tags` are as they were some time ago, and `own` are such entries then.
 */
struct vacancy {
	uint64_t bucket;
	uint4 tags;
	uint32_t own;
};

/* Where the search for it begins. */
static __device__ __forceinline__ struct vacancy vacancy_at(const struct gpu_take &t, struct digest d)
{
	struct vacancy v = { bucket_of(t.table, d) };

	v.tags = load_tags(t.table, v.bucket);
	v.own = slots_with(v.tags, tag_of(d));
	return v;
}

/* A bucket on the way of a search. True: it is over, with what is in `value`. */
static __device__ __forceinline__ bool look_into(const struct gpu_take &t, struct digest d, uint64_t bucket, uint4 tags,
						 struct vacancy *v, uint64_t *value)
{
	uint32_t empty = slots_with(tags, GPU_SLOT_EMPTY), own = 0;

	for (uint32_t slots = slots_with(tags, tag_of(d)); slots; slots &= slots - 1) {
		uint64_t slot = bucket * GPU_BUCKET + __ffs(slots) - 1, is = value_at(t.table, slot);
		struct digest key = t.table.slots[slot].key; /* perhaps for nothing, but not one after the other */

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
 * The value of an entry of an older version; 0: there is none, and `ret` is set, if there is room. Two buckets are
 * looked at together if one access has the tags of both.
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

/* The slot that this version has entered such a chunk in, plus one; 0: none. When all have been entered. */
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

/* What a thread has entered, to be added up in the end. */
struct tally {
	uint32_t unknown, entered, reclaimed, equal;
};

/* Enters a chunk that no older version has. Returns its slot, which an equal one may have. */
static __device__ uint64_t enter_chunk(const struct gpu_take &t, struct digest d, uint32_t chunk, struct vacancy v,
				       struct tally *tally)
{
	uint64_t bucket = v.bucket, own = value_of(t.number, chunk);
	uint32_t tag = tag_of(d), same = v.own; /* others with this tag are older, and have been looked at */
	uint4 tags = v.tags;

	/* Ends: there is more room than chunks that come here. */
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

/* A digest that is in no slot yet, by one thread only, into a table without dropped slots. */
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
