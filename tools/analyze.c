#include "tools/analyze.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/analyze_complain.h"
#include "tools/analyze_crew.h"

#define PAGE_SMALL 4096u

/* A file that is being read. */
struct reader {
	struct analysis *a;
	struct crew *crew;
	uint8_t *windows; /* two: one is being cut while the other is read */
	unsigned turn;

	struct file *file;
	int fd;
	uint64_t off;	     /* of the next window */
	uint64_t data, hole; /* the next data, from before `off` or behind it */
};

int analysis_init(struct analysis *a, const struct analyze_conf *conf)
{
	bool two = conf->page > 0 && conf->page != PAGE_SMALL;
	size_t memory = conf->memory / (two ? 3 : 2);
	int r;

	*a = (struct analysis){ .conf = *conf };
	r = cutting_init(&a->cutting[a->nr_cuttings++], PAGE_SMALL, NULL, memory);
	if (r == 0 && two)
		r = cutting_init(&a->cutting[a->nr_cuttings++], conf->page, NULL, memory);
	if (r == 0)
		r = cutting_init(&a->cutting[a->nr_cuttings++], 0, &conf->cdc, memory);
	return r;
}

void analysis_release(struct analysis *a)
{
	for (size_t i = 0; i < a->nr_cuttings; i++)
		cutting_release(&a->cutting[i]);
	a->nr_cuttings = 0;
}

/* Find the data at or behind `off`. A filesystem that knows of no holes has data everywhere. */
static void find_data(struct reader *rd)
{
	uint64_t size = rd->file->size;
	off_t data = lseek(rd->fd, (off_t)rd->off, SEEK_DATA), hole;

	if (data < 0)
		data = errno == ENXIO ? (off_t)size : (off_t)rd->off;
	rd->data = MIN((uint64_t)data, size);
	hole = lseek(rd->fd, data, SEEK_HOLE);
	rd->hole = hole < 0 ? size : MIN((uint64_t)hole, size);
}

/* Whole windows without any data from `off` on, or all to the end. */
static uint64_t zeros_ahead(struct reader *rd)
{
	if (rd->off >= rd->hole)
		find_data(rd);
	if (rd->data >= rd->file->size)
		return rd->file->size - rd->off;
	return round_down(rd->data, WINDOW) > rd->off ? round_down(rd->data, WINDOW) - rd->off : 0;
}

static void count_holes(struct file *f, int fd)
{
	off_t data, hole = 0, size = (off_t)f->size;

	while (hole < size) {
		data = lseek(fd, hole, SEEK_DATA);
		if (data < 0)
			data = errno == ENXIO ? size : hole;
		f->holes += (uint64_t)(MIN(data, size) - hole);
		hole = data < size ? lseek(fd, data, SEEK_HOLE) : size;
		if (hole < 0)
			return;
	}
}

static int read_window(struct reader *rd, uint8_t *window, size_t len)
{
	for (size_t n = 0; n < len;) {
		ssize_t got = pread(rd->fd, window + n, len - n, (off_t)(rd->off + n));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return complain(-errno, "%s: cannot be read at %" PRIu64, rd->file->path, rd->off + n);
		if (got == 0)
			return refuse("%s: has become shorter while it was read", rd->file->path);
		n += (size_t)got;
	}
	memset(window + len, 0, WINDOW - len);
	return 0;
}

/* 1: go on, 0: the end, < 0: the file cannot be read (*ret_fatal: nor can others). */
static int read_piece(struct reader *rd, bool *ret_fatal)
{
	uint8_t *window = rd->windows + (size_t)(rd->turn++ % 2) * WINDOW;
	uint64_t left = rd->file->size - rd->off, len;
	int r;

	if (left == 0)
		return 0;
	len = zeros_ahead(rd);
	if (len > 0) {
		r = crew_post(rd->crew, (struct piece){ .kind = PIECE_ZEROS, .len = len });
	} else {
		len = MIN(left, (uint64_t)WINDOW);
		r = read_window(rd, window, len);
		if (r < 0)
			return r;
		r = crew_post(rd->crew, (struct piece){ .kind = PIECE_DATA, .window = window, .len = len });
	}
	*ret_fatal = r < 0;
	rd->off += len;
	rd->a->looked_at += len;
	return r < 0 ? r : 1;
}

static int open_file(struct file *f)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* it may be a FIFO by now */
	struct stat st;
	int r = 0;

	if (fd < 0)
		return complain(-errno, "%s: cannot be opened", f->path);
	if (fstat(fd, &st) < 0)
		r = complain(-errno, "%s", f->path);
	else if (!S_ISREG(st.st_mode))
		r = refuse("%s: is no file any more", f->path);
	if (r < 0) {
		close(fd);
		return r;
	}
	f->size = (uint64_t)st.st_size;
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return fd;
}

static bool go_on(struct analysis *a)
{
	return !a->conf.step || a->conf.step(a->conf.userdata, a->looked_at);
}

/* The figures of a file that cannot be read to its end are of what was read. 0, or what others fail of too. */
static int read_file(struct reader *rd, struct files *files, uint32_t number)
{
	struct file *f = rd->file = &files->file[number];
	_cleanup_(closep) int fd = open_file(f);
	bool fatal = false;
	int r;

	rd->fd = fd;
	rd->off = rd->data = rd->hole = 0;
	if (fd < 0) {
		f->error = fd;
		f->size = 0;
		rd->a->complete = false;
		return 0;
	}
	count_holes(f, fd);
	r = crew_post(rd->crew, (struct piece){ .kind = PIECE_BEGIN, .files = files, .file = number });
	if (r < 0)
		return r;
	while ((r = read_piece(rd, &fatal)) > 0)
		if (!go_on(rd->a))
			break;
	f->error = r < 0 ? r : 0;
	if (rd->off < f->size) {
		f->size = rd->off;
		rd->a->complete = false;
	}
	r = crew_post(rd->crew, (struct piece){ .kind = PIECE_END });
	return fatal ? f->error : r;
}

static void add_up(struct analysis *a, const struct files *files)
{
	for (size_t i = 0; i < files->nr; i++) {
		a->size += files->file[i].size;
		a->holes += files->file[i].holes;
		for (size_t k = 0; k < a->nr_cuttings; k++)
			figures_add(&a->total[k], &files->file[i].figures[k]);
	}
}

int analysis_run(struct analysis *a, struct files *files)
{
	_cleanup_(freep) uint8_t *windows = malloc((size_t)2 * WINDOW);
	struct crew crew;
	struct reader rd = { .a = a, .crew = &crew, .windows = windows };
	int r, last;

	if (!windows)
		return -ENOMEM;
	r = crew_start(&crew, a->cutting, a->nr_cuttings);
	if (r < 0)
		return complain(r, "no threads");
	a->complete = true;
	for (size_t i = 0; i < files->nr && r == 0; i++) {
		if (!go_on(a)) {
			a->complete = false;
			break;
		}
		r = read_file(&rd, files, (uint32_t)i);
	}
	last = crew_stop(&crew);
	add_up(a, files);
	return r < 0 ? r : last;
}

bool analysis_is_exact(const struct analysis *a)
{
	for (size_t i = 0; i < a->nr_cuttings; i++)
		if (a->cutting[i].distinct.bits > 0)
			return false;
	return true;
}
