/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json/json_flat.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/stat/stat_ask.h"
#include "tools/stat/stat_watch.h"

#define PAGE_MODE 0644
#define READ_STEP 65536u
#define PAGE_MAX MiB(64) /* larger than any report */

static int complain_about_page(const char *file, int r, const char *what)
{
	text_printf(stderr, "ckptfs-stat: %s: %s%s%s\n", file, what ? what : "", what && r != -EINVAL ? ": " : "",
		    r != -EINVAL ? strerror(-r) : "");
	return r;
}

/* 1; 0: does not exist. */
static int read_page(const char *file, struct buf *ret)
{
	_cleanup_(closep) int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n = 1;

	if (fd < 0)
		return errno == ENOENT ? 0 : complain_about_page(file, -errno, "cannot be read");
	while (n > 0 && ret->len < PAGE_MAX) {
		if (buf_reserve(ret, READ_STEP) < 0)
			return -ENOMEM;
		n = read(fd, ret->data + ret->len, READ_STEP);
		ret->len += n > 0 ? (size_t)n : 0;
	}
	return n >= 0	       ? 1 :
	       errno == EISDIR ? complain_about_page(file, -EINVAL, "a directory; give the name of a file in it") :
				 complain_about_page(file, -errno, "cannot be read");
}

/* Readings of the previous report, if there is one. */
static int load_record(const char *file, const char *store_id, struct record *ret)
{
	_cleanup_(buf_release) struct buf page = BUF_EMPTY;
	_cleanup_(record_release) struct record old = { 0 };
	int r = read_page(file, &page);

	if (r <= 0) {
		snprintf(ret->store_id, sizeof(ret->store_id), "%s", store_id);
		return r;
	}
	r = record_parse((const char *)page.data, page.len, &old);
	if (r == -EBADMSG)
		return complain_about_page(
			file, -EINVAL, "exists and is not a report of ckptfs-stat; not overwritten, give another name");
	if (r < 0)
		return r;
	if (strcmp(old.store_id, store_id) != 0)
		return complain_about_page(file, -EINVAL,
					   "is a report of another store; not overwritten, give another name");
	*ret = old;
	old = (struct record){ 0 };
	return 0;
}

static struct record_reading reading_of(const struct json_flat *j)
{
	struct stat_reading s = stat_reading_of(j);

	return (struct record_reading){
		.time_s = (uint64_t)time(NULL),
		.logical = json_flat_u64(j, "logical_bytes"),
		.stored = json_flat_u64(j, "stored_bytes"),
		.compressed = json_flat_u64(j, "compressed_bytes"),
		.disk = json_flat_u64(j, "disk_bytes"),
		.pid = s.pid,
		.uptime_s = s.uptime_ns / UINT64_C(1000000000),
		.cut = s.cut,
		.fresh = s.fresh,
	};
}

static mode_t file_mode(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return PAGE_MODE & ~mask;
}

/* Writes a temporary file first, so that readers see a complete page. */
static int write_page(const char *file, const struct report *report)
{
	_cleanup_(freep) char *temporary = NULL;
	FILE *to = NULL;
	int fd, r = 0;

	if (asprintf(&temporary, "%s.XXXXXX", file) < 0)
		return -ENOMEM;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return complain_about_page(file, -errno, "cannot be written");
	if (fchmod(fd, file_mode()) < 0 || !(to = fdopen(fd, "w"))) {
		r = -errno;
		close(fd);
		goto err_unlink;
	}
	errno = 0;
	report_print(to, report);
	if (fflush(to) != 0 || ferror(to)) /* after a failed write there may be nothing left to flush */
		r = errno ? -errno : -EIO;
	else if (fsync(fd) < 0)
		r = -errno;
	if (fclose(to) != 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(temporary, file) < 0)
		r = -errno;
	if (r == 0)
		return 0;
err_unlink:
	unlink(temporary);
	return complain_about_page(file, r, "cannot be written");
}

int report_write(const char *file, const char *mountpoint)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	_cleanup_(record_release) struct record record = { 0 };
	_cleanup_(report_delete_release) struct report_delete delete = { 0 };
	_cleanup_(report_seals_release) struct report_seals seals = { 0 };
	_cleanup_(walk_release) struct walk walk = { 0 };
	struct report_files files = { 0 };
	struct record_reading now;
	struct report report = {
		.mount = &a.j, .walk = &walk, .record = &record, .seals = &seals, .delete = &delete, .files = &files
	};
	struct statvfs space;
	int r = stat_ask(mountpoint, &a);

	if (r < 0) {
		stat_complain(mountpoint, r, 0);
		return r;
	}
	if (strcmp(json_flat_get(&a.j, "kind"), "mount") != 0)
		return complain_about_page(mountpoint, -EINVAL, "--html is for a whole mount; give the mountpoint");
	r = load_record(file, json_flat_get(&a.j, "store_id"), &record);
	if (r < 0)
		return r;
	now = reading_of(&a.j);
	r = record_add(&record, &now);
	if (r == 0)
		r = walk_mount(mountpoint, &walk);
	if (r == 0)
		r = report_seals_get(mountpoint, &seals);
	if (r == 0)
		r = report_delete_get(mountpoint, &walk, &seals, &delete);
	if (r == 0)
		r = report_files_get(mountpoint, &walk, &files);
	if (r < 0)
		return r;
	if (statvfs(mountpoint, &space) == 0) {
		report.available = (uint64_t)space.f_bavail * space.f_frsize;
		report.size = (uint64_t)space.f_blocks * space.f_frsize;
	}
	return write_page(file, &report);
}
