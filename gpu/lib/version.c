/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/lib/version.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "gpu/lib/ckptfs_gpu.h"
#include "gpu/lib/lineage.h"
#include "gpu/format/manifest_format.h"
#include "gpu/lib/producer.h"

struct version {
	struct ckptfs_gpu_version public;
	struct ckptfs_gpu_buffer *buffers;
	uint64_t *offs;
	char *text; /* names, each with a NUL, and infos */
};

void ckptfs_gpu_version_free(struct ckptfs_gpu_version *v)
{
	struct version *version;

	if (!v)
		return;
	version = container_of(v, struct version, public);
	free(version->buffers);
	free(version->offs);
	free(version->text);
	free(version);
}

static void version_freep(struct ckptfs_gpu_version **v)
{
	ckptfs_gpu_version_free(*v);
}

static int version_new(struct manifest_iter it, size_t text_len, struct ckptfs_gpu_version **ret)
{
	struct version *v = calloc(1, sizeof(*v));
	_cleanup_(version_freep) struct ckptfs_gpu_version *public = v ? &v->public : NULL;
	struct manifest_entry entry;
	char *text;

	if (!v)
		return -ENOMEM;
	v->buffers = calloc(MAX(it.nr, UINT64_C(1)), sizeof(*v->buffers));
	v->offs = calloc(MAX(it.nr, UINT64_C(1)), sizeof(*v->offs));
	text = v->text = malloc(MAX(text_len, (size_t)1));
	if (!v->buffers || !v->offs || !text)
		return -ENOMEM;
	for (size_t i = 0; manifest_next(&it, &entry) > 0; i++) {
		v->buffers[i] = (struct ckptfs_gpu_buffer){ .name = text, .len = entry.len };
		text = mempcpy(text, entry.name, entry.name_len);
		*text++ = '\0';
		v->buffers[i].info = text;
		v->buffers[i].info_len = entry.info_len;
		text = mempcpy(text, entry.info, entry.info_len);
		v->offs[i] = entry.off;
		v->public.nr = i + 1;
	}
	v->public.buffers = v->buffers;
	v->public.offs = v->offs;
	*ret = TAKE(public);
	return 0;
}

static int read_manifest(int fd, struct ckptfs_gpu_version **ret)
{
	struct manifest_footer_disk disk;
	struct manifest_footer footer;
	struct manifest_iter it;
	_cleanup_(freep) uint8_t *entries = NULL;
	size_t len;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size < sizeof(disk))
		return -EBADMSG;
	r = lineage_read(fd, &disk, sizeof(disk), (uint64_t)st.st_size - sizeof(disk));
	if (r == 0)
		r = manifest_footer_decode(&disk, sizeof(disk), (uint64_t)st.st_size, &footer);
	if (r < 0)
		return r;
	len = (uint64_t)st.st_size - sizeof(disk) - footer.off;
	entries = malloc(MAX(len, (size_t)1));
	if (!entries)
		return -ENOMEM;
	r = lineage_read(fd, entries, len, footer.off);
	if (r == 0)
		r = manifest_decode(&footer, entries, len, &it);
	/* An encoded entry has more than the one byte of overhead that the NUL of its name needs. */
	return r < 0 ? r : version_new(it, len, ret);
}

static int open_version(const struct lineage *l, uint32_t number, struct ckptfs_gpu_version **ret)
{
	int fd = lineage_open_version(l, number), r;

	if (fd < 0)
		return fd;
	r = read_manifest(fd, ret);
	if (r < 0) {
		closep(&fd);
		return log_errno(r, "version %" PRIu32 ": no valid manifest", number);
	}
	return fd;
}

int version_read(const struct lineage *l, uint32_t number, struct ckptfs_gpu_version **ret)
{
	_cleanup_(closep) int fd = open_version(l, number, ret);

	return fd < 0 ? fd : 0;
}

/* --- restoring --- */

/* Buffers of a version by name. */
struct entry {
	const char *name;
	uint64_t off, len;
};

static int by_name(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int sort_entries(const struct ckptfs_gpu_version *v, struct entry **ret)
{
	struct entry *entries = calloc(MAX(v->nr, (size_t)1), sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	for (size_t i = 0; i < v->nr; i++)
		entries[i] = (struct entry){ v->buffers[i].name, v->offs[i], v->buffers[i].len };
	qsort(entries, v->nr, sizeof(*entries), by_name);
	*ret = entries;
	return 0;
}

/* Finds the offset of each buffer. All are checked before the first is overwritten. */
static int find_all(const struct ckptfs_gpu_version *v, uint32_t number, const struct ckptfs_gpu_buffer *buffers,
		    size_t nr, uint64_t **ret)
{
	_cleanup_(freep) struct entry *entries = NULL;
	_cleanup_(freep) uint64_t *offs = calloc(MAX(nr, (size_t)1), sizeof(*offs));
	int r;

	r = offs ? sort_entries(v, &entries) : -ENOMEM;
	if (r < 0)
		return r;
	for (size_t i = 0; i < nr; i++) {
		const struct entry *e, key = { .name = buffers[i].name };

		e = bsearch(&key, entries, v->nr, sizeof(*entries), by_name);
		if (!e)
			return log_errno(-ENOENT, "version %" PRIu32 ": no buffer %s", number, buffers[i].name);
		if (e->len != buffers[i].len)
			return log_errno(-ERANGE, "version %" PRIu32 ": buffer %s has %" PRIu64 " bytes, not %" PRIu64,
					 number, buffers[i].name, e->len, buffers[i].len);
		offs[i] = e->off;
	}
	*ret = TAKE(offs);
	return 0;
}

static int read_all(int fd, const uint64_t *offs, const struct ckptfs_gpu_buffer *buffers, size_t nr, void *stream)
{
	struct gpu_reader *reader = NULL;
	int r = 0, end;

	for (size_t i = 0; r == 0 && i < nr; i++) {
		int device = buffers[i].len > 0 ? gpu_device_of(buffers[i].p) : PRODUCER_CPU;

		if (device == PRODUCER_CPU) {
			r = lineage_read(fd, buffers[i].p, buffers[i].len, offs[i]);
			continue;
		}
		if (!reader)
			r = gpu_reader_new(device, stream, &reader);
		if (r == 0)
			r = gpu_reader_read(reader, fd, offs[i], buffers[i].p, buffers[i].len);
	}
	end = gpu_reader_free(reader);
	return r < 0 ? r : end;
}

int version_restore(const struct lineage *l, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
		    void *stream)
{
	_cleanup_(version_freep) struct ckptfs_gpu_version *v = NULL;
	_cleanup_(closep) int fd = open_version(l, number, &v);
	_cleanup_(freep) uint64_t *offs = NULL;
	int r;

	if (fd < 0)
		return fd;
	r = find_all(v, number, buffers, nr, &offs);
	return r < 0 ? r : read_all(fd, offs, buffers, nr, stream);
}
