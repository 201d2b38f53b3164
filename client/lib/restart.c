/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Restoring memory from a checkpoint. Before anything changes, the header and table of the file are checked, and that
 * existing regions have the lengths recorded there. Then the content is read into existing regions, or into memory
 * mapped for new ones.
 *
 * A region at the same offset within its first page as before keeps its place in the file and is clean: the next
 * checkpoint is a clone of this file. Otherwise, or if another region has its place, all of it is dirty.
 *
 * If the newest checkpoint was requested and cannot be read completely, the regions created for it are removed and the
 * next older one is tried.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "client/lib/ckptfs.h"
#include "client/lib/client.h"
#include "client/lib/image.h"
#include "client/lib/own_fd.h"

#define READ_MAX MiB(16) /* per request; holes are searched before each */
#define HOLE_MIN MiB(1) /* smaller holes are read */

static void copy_name(const struct image_region *in, char ret[IMAGE_NAME_MAX + 1])
{
	memcpy(ret, in->name, in->name_len);
	ret[in->name_len] = '\0';
}

static int check_lengths(struct image_iter it)
{
	struct image_region in;
	int r;

	while ((r = image_next(&it, &in)) > 0) {
		char name[IMAGE_NAME_MAX + 1];
		const struct region *region;

		copy_name(&in, name);
		region = region_by_name(name);
		if (region && region->len != in.len)
			return log_errno(-ERANGE, "region %s: %" PRIu64 " bytes in the checkpoint, %zu here", name,
					 in.len, region->len);
	}
	return r;
}

/* The offset of the next data in the file at or after `at`. */
static uint64_t next_data(int fd, uint64_t at, uint64_t end)
{
	off_t data = lseek(fd, (off_t)at, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? end : at; /* not every filesystem reports holes */
	return MIN((uint64_t)data, end);
}

static void clear_bytes(uint8_t *p, const uint8_t *end)
{
	for (; p < end; p++)
		if (*p != 0) /* does not allocate pages that were never written */
			*p = 0;
}

/* Zeroes a range; in memory mapped by libckptfs, by returning its pages to the kernel. */
static void clear_range(const struct region *region, uint8_t *p, size_t len)
{
	uintptr_t page = client.page_size, start = round_up((uintptr_t)p, page),
		  end = round_down((uintptr_t)p + len, page);

	if (!region->ours || start >= end || madvise((void *)start, end - start, MADV_DONTNEED) < 0)
		start = end = (uintptr_t)p + len;
	clear_bytes(p, (uint8_t *)start);
	clear_bytes((uint8_t *)end, p + len);
}

static int read_region(int fd, const struct region *region, uint64_t off)
{
	uint64_t at = off, end = off + region->len;

	while (at < end) {
		uint64_t data = next_data(fd, at, end), len = MIN(end - at, READ_MAX);
		uint8_t *p = region->p + (at - off);
		ssize_t n;

		if (data - at >= HOLE_MIN) {
			clear_range(region, p, data - at);
			at = data;
			continue;
		}
		n = io_pread(fd, p, len, at);
		if (n != (ssize_t)len)
			return log_errno(n < 0 ? (int)n : -EBADMSG, "region %s: cannot read", region->name);
		at += len;
	}
	return 0;
}

/* Maps memory for a region that the program does not have. */
static int map_region(const struct image_region *in, const char *name, uint32_t slot, uint32_t flags,
		      struct region **ret) REQUIRES(client.call)
{
	bool same = (flags & CKPTFS_RESTART_ADDRESSES) && (in->flags & IMAGE_REGION_OURS);
	uintptr_t wanted = same ? in->address : 0;
	void *p = client_map((void *)wanted, in->len);
	int r;

	if (p == MAP_FAILED || (wanted != 0 && (uintptr_t)p != wanted)) {
		/* old kernels take the address as a hint: they do not support MAP_FIXED_NOREPLACE */
		r = p == MAP_FAILED ? -errno : -EEXIST;
		if (p != MAP_FAILED)
			munmap(p, round_up(in->len, client.page_size));
		return log_errno(r, "region %s: cannot map %" PRIu64 " bytes at %#" PRIxPTR, name, in->len, wanted);
	}
	r = client_add_region(name, p, in->len, REGION_RESTORED, slot, ret);
	if (r < 0)
		munmap(p, round_up(in->len, client.page_size));
	return r;
}

/* The region's slot in the next file: the same as in this one if its offset within the page is unchanged; else 0. */
static uint32_t slot_of(const struct image_region *in, const struct image_header *header, uintptr_t address)
{
	if (header->page_size != client.page_size || in->off % client.page_size != address % client.page_size ||
	    in->off / client.page_size >= PAGES_NONE)
		return 0;
	return (uint32_t)(in->off / client.page_size);
}

/* Regions that were removed, so that those of the file find their slots free. */
struct aside {
	struct region **region; /* NULL: added again */
	uint32_t nr;
	struct region **made; /* created for the file */
	uint32_t nr_made;
};

static int set_regions_aside(struct aside *a, uint32_t nr_in_file)
{
	*a = (struct aside){ .nr = client.nr_regions };
	a->region = calloc((size_t)a->nr + 1, sizeof(struct region *));
	a->made = calloc((size_t)nr_in_file + 1, sizeof(struct region *));
	if (!a->region || !a->made) {
		free(a->region);
		free(a->made);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < a->nr; i++) {
		struct region *region = client.by_slot[0];

		client_open_region(region);
		region_remove(region);
		a->region[i] = region;
	}
	return 0;
}

static int add_again(struct region *region, uint32_t slot) REQUIRES(client.call)
{
	int r = region_add(region, slot);

	if (r < 0)
		return log_errno(r, "region %s: no slot: it is not protected any more", region->name);
	region->since = slot != 0 && region->slot == slot ? 0 : client.number + 1;
	client_pages_restored(region, false);
	return 0;
}

static int add_rest_again(struct aside *a, bool restored) REQUIRES(client.call)
{
	int error = 0;

	for (uint32_t i = 0; i < a->nr; i++) {
		int r = a->region[i] ? add_again(a->region[i], 0) : 0;

		if (a->region[i] && restored)
			log_warning("region %s: not in the checkpoint, content unchanged", a->region[i]->name);
		error = error < 0 ? error : r;
	}
	free(a->region);
	free(a->made);
	return error;
}

static struct region **find_aside(struct aside *a, const char *name)
{
	for (uint32_t i = 0; i < a->nr; i++)
		if (a->region[i] && strcmp(a->region[i]->name, name) == 0)
			return &a->region[i];
	return NULL;
}

static int restore_region(int fd, const struct image_region *in, const struct image_header *header, uint32_t flags,
			  struct aside *a) REQUIRES(client.call)
{
	struct region *region, **existing;
	char name[IMAGE_NAME_MAX + 1];
	int r;

	copy_name(in, name);
	existing = find_aside(a, name);
	if (existing) {
		region = TAKE(*existing);
		r = add_again(region, slot_of(in, header, (uintptr_t)region->p));
	} else {
		r = map_region(in, name, slot_of(in, header, 0), flags, &region);
		if (r == 0)
			a->made[a->nr_made++] = region;
	}
	if (r == 0)
		r = read_region(fd, region, in->off);
	if (r == 0)
		client_pages_restored(region, region->since == 0);
	return r;
}

static int restore(int fd, const struct image_header *header, struct image_iter it, uint32_t flags) REQUIRES(client.call)
{
	struct image_region in;
	struct aside aside;
	int r = set_regions_aside(&aside, header->nr_regions), rest;

	if (r < 0)
		return r;
	while (r == 0 && (r = image_next(&it, &in)) > 0)
		r = restore_region(fd, &in, header, flags, &aside);
	for (uint32_t i = 0; r < 0 && i < aside.nr_made; i++)
		client_drop_region(aside.made[i]);
	rest = add_rest_again(&aside, r == 0);
	return r < 0 ? r : rest;
}

/* Opens checkpoint `number` or, if that is 0, the newest valid one below `below`; with CKPTFS_SEALED a sealed one. */
static int open_checkpoint(uint32_t number, uint32_t below, struct image_header *header, struct buf *table,
			   uint32_t *ret_number)
{
	bool sealed = client.options.flags & CKPTFS_SEALED;
	uint32_t found;
	int r, fd, why = -ENOENT;

	if (number != 0) {
		r = sealed ? image_dir_next_below(client.dir, number + 1, sealed, &found) : 0;
		if (r < 0 || (sealed && found != number))
			return r < 0 ? r :
				       log_errno(-ENOENT, "checkpoint %s/%06" PRIu32 ": not sealed",
						 image_dir_path(client.dir), number);
		*ret_number = number;
		return image_open(client.dir, number, false, header, table);
	}
	while ((r = image_dir_next_below(client.dir, below, sealed, &number)) == 0 && number > 0) {
		fd = image_open(client.dir, number, true, header, table);
		if (fd >= 0) {
			*ret_number = number;
			return fd;
		}
		if (fd != -ENOENT) /* this member may not be in every checkpoint */
			why = fd;
		below = number;
	}
	return r < 0 ? r : why;
}

/* Errors that an older checkpoint may not have. */
static bool is_file_error(int r)
{
	return r == -EIO || r == -EBADMSG;
}

/* *ret_number: the checkpoint that was opened, even on error; else 0. */
static int restart_below(uint32_t number, uint32_t below, uint32_t flags, uint32_t *ret_number) REQUIRES(client.call)
{
	_cleanup_(buf_release) struct buf table = BUF_EMPTY;
	_cleanup_(own_fd_closep) int fd = -1;
	struct image_header header;
	struct image_iter it;
	sigset_t before;
	int r;

	*ret_number = 0;
	fd = open_checkpoint(number, below, &header, &table, ret_number);
	if (fd < 0)
		return fd;
	r = image_table_decode(&header, table.data, table.len, &it);
	if (r == 0)
		r = check_lengths(it);
	if (r < 0)
		return r;
	r = restore(fd, &header, it, flags);
	client_job_lock(&before);
	client.last = r == 0 && header.page_size == client.page_size ? *ret_number : 0;
	client.last_end = client.last > 0 ? header.table_off : 0;
	client.last_lost = client.last == 0;
	client_job_unlock(&before);
	return r;
}

static int restart(uint32_t number, uint32_t flags, uint32_t *ret_number) REQUIRES(client.call)
{
	uint32_t found, below = UINT32_MAX;
	int r, why = 0;

	if (flags & ~CKPTFS_RESTART_ADDRESSES)
		return log_errno(-EINVAL, "restart: unknown flags %#" PRIx32, flags);
	writer_wait();
	client_free_gone_regions();
	while (is_file_error(r = restart_below(number, below, flags, &found)) && number == 0 && found > 0) {
		log_warning("checkpoint %s/%06" PRIu32 ": not usable: %s", image_dir_path(client.dir), found,
			    strerror(-r));
		why = r;
		below = found;
	}
	if (r == 0)
		*ret_number = found;
	return r == -ENOENT && why < 0 ? why : r; /* memory has changed: the program must not start from scratch */
}

int ckptfs_restart(uint32_t number, uint32_t flags, uint32_t *ret_number)
{
	uint32_t done = 0;
	int r;

	if (!client_enter(&r))
		return r;
	if (client_capture) /* its heap would be overwritten while it is in use */
		r = log_errno(-EOPNOTSUPP, "restart: not possible while the memory of the program is captured");
	else
		r = restart(number, flags, &done);
	if (r == 0 && ret_number)
		*ret_number = done;
	client_leave();
	return r;
}
