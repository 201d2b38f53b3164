/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Golden objects, one after the other, give the bytes that they stand for; whatever is wrong with them shows. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "tests/unit/gpu/format/delta_apply.h"
#include "tests/unit/gpu/format/rig.h"

#define NR_VERSIONS 5
#define SIZE 1024

static struct version {
	uint8_t bytes[SIZE];
	size_t len;
} versions[NR_VERSIONS];
static int read_error;

static ssize_t read_version(void *userdata, uint32_t version, uint64_t off, void *p, size_t len)
{
	const struct version *v = &versions[version];
	size_t n;

	assert_ptr_equal(userdata, versions);
	assert_true(version > 0 && version < NR_VERSIONS);
	if (read_error)
		return read_error;
	n = off < v->len ? MIN(len, v->len - off) : 0;
	memcpy(p, v->bytes + off, n);
	return (ssize_t)n;
}

static int apply(const struct buf *object, const uint8_t key[LEAF_KEY_LEN], struct version *ret)
{
	struct delta_header h;
	struct leaf_key k;
	int r;

	r = delta_header_decode(object->data, object->len, &h);
	if (r < 0)
		return r;
	assert_true(h.content_len <= SIZE);
	ret->len = (size_t)h.content_len;
	memset(ret->bytes, 0xee, sizeof(ret->bytes)); /* nothing may be left of what was there */
	leaf_key_init(&k, key);
	return delta_apply(object->data, object->len, &k, read_version, versions, ret->bytes, ret->len);
}

static void load(struct rig_input *in, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/golden/delta/%s.txt", TESTS_DIR, name);
	rig_input_load(in, path);
}

/* Chunks of 32 bytes of each letter, a dot for zeros, and a short one. */
static void letters(struct version *v, const char *chunks, const char *tail)
{
	for (v->len = 0; *chunks; chunks++, v->len += 32)
		memset(v->bytes + v->len, *chunks == '.' ? 0 : *chunks, 32);
	memcpy(v->bytes + v->len, tail, strlen(tail));
	v->len += strlen(tail);
}

static int set_up(void **state _unused_)
{
	letters(&versions[1], "ABCDEFGHIJ", "kkkkk");
	letters(&versions[2], "ABwxCDEFyxGGG.wxy", "qqqqqqq");
	versions[3] = versions[2];
	memset(versions[3].bytes + versions[3].len, 0, 49);
	versions[3].len += 49;
	memcpy(versions[3].bytes + 3, "ten bytes.", 10);
	memset(versions[3].bytes + 64, 'n', 32);
	versions[3].bytes[200] = '!';
	return 0;
}

static const struct {
	const char *name;
	unsigned version;
} golden[] = {
	{ "v1-full", 1 },  { "v1-basic", 2 },	 { "v1-list", 2 },  { "v1-tree", 2 },
	{ "v1-nodes", 2 }, { "v1-literals", 3 }, { "v1-empty", 4 },
};

static void golden_objects_give_their_versions(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(golden); i++) {
		const struct version *want = &versions[golden[i].version];
		_cleanup_(rig_input_release) struct rig_input in;
		struct version got;

		load(&in, golden[i].name);
		assert_int_equal(apply(&in.object, rig_key, &got), 0);
		assert_int_equal(got.len, want->len);
		assert_memory_equal(got.bytes, want->bytes, want->len);
	}
}

static void every_flipped_bit_of_an_object_is_noticed(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(golden); i++) {
		_cleanup_(rig_input_release) struct rig_input in;
		struct version got;

		load(&in, golden[i].name);
		for (size_t bit = 0; bit < 8 * in.object.len; bit++) {
			in.object.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(apply(&in.object, rig_key, &got), -EBADMSG);
			in.object.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
}

static void another_parent_source_or_key_is_noticed(void **state _unused_)
{
	uint8_t key[LEAF_KEY_LEN] = "another one";
	_cleanup_(rig_input_release) struct rig_input in;
	struct version got;

	load(&in, "v1-tree");
	assert_int_equal(apply(&in.object, key, &got), -EBADMSG);
	versions[1].bytes[3] ^= 1; /* stays as it was */
	assert_int_equal(apply(&in.object, rig_key, &got), -EBADMSG);
	versions[1].bytes[3] ^= 1;
	versions[1].bytes[100] ^= 1; /* moves */
	assert_int_equal(apply(&in.object, rig_key, &got), -EBADMSG);
	versions[1].bytes[100] ^= 1;
	versions[1].bytes[250] ^= 1; /* is not asked for */
	assert_int_equal(apply(&in.object, rig_key, &got), 0);
	versions[1].bytes[250] ^= 1;
	versions[1].len = 180; /* too short a source */
	assert_int_equal(apply(&in.object, rig_key, &got), -EBADMSG);
	versions[1].len = 325;
	read_error = -EIO;
	assert_int_equal(apply(&in.object, rig_key, &got), -EIO);
	read_error = 0;
	assert_int_equal(apply(&in.object, rig_key, &got), 0);
}

static void content_of_another_length_is_refused(void **state _unused_)
{
	_cleanup_(rig_input_release) struct rig_input in;
	uint8_t content[SIZE];
	struct leaf_key k;

	leaf_key_init(&k, rig_key);
	load(&in, "v1-full");
	for (size_t len = 0; len < SIZE; len += 5)
		assert_int_equal(delta_apply(in.object.data, in.object.len, &k, read_version, versions, content, len),
				 len == 325 ? 0 : -EINVAL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_objects_give_their_versions),
		cmocka_unit_test(every_flipped_bit_of_an_object_is_noticed),
		cmocka_unit_test(another_parent_source_or_key_is_noticed),
		cmocka_unit_test(content_of_another_length_is_refused),
	};

	return cmocka_run_group_tests_name("delta_apply", tests, set_up, NULL);
}
