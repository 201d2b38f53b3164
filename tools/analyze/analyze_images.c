/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/noatime.h"
#include "base/util.h"
#include "tools/analyze/analyze_complain.h"
#include "tools/analyze/analyze_sets.h"

#define LIMIT_MS 60000 /* for the classifier */
#define FIRST_INO 16u

/* A memory area in an image. */
struct area {
	size_t image;
	enum segment_kind kind;
	uint64_t off, len;
};

struct work {
	struct images *is;
	uint64_t size; /* of all files; the scale of `step` */
	struct area *area; /* grouped by image */
	size_t nr, room;
	uint64_t all, done; /* bytes to write into all stores; bytes of completed areas */
	bool stopped;
};

/* --- areas --- */

static int add_area(struct work *w, enum segment_kind kind, const struct typed_extent *e)
{
	struct image *image = &w->is->image[w->is->nr - 1];

	if (w->nr == w->room) {
		size_t room = MAX(2 * w->room, (size_t)256);
		struct area *more = reallocarray(w->area, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->area = more;
		w->room = room;
	}
	w->area[w->nr++] = (struct area){ w->is->nr - 1, kind, e->off, e->len };
	image->kind[kind].original += e->len;
	image->kind[SEGMENT_NONE].original += e->len;
	return 0;
}

static int add_image(struct work *w, const struct set_member *m)
{
	int r = 0;

	w->is->image[w->is->nr++].file = m->file;
	for (size_t i = 0; i < m->typed.nr_extents && r == 0; i++)
		r = add_area(w, m->typed.variable[m->typed.extent[i].variable].kind, &m->typed.extent[i]);
	for (size_t i = 0; i < m->nr_rest && r == 0; i++) /* headers and the like */
		r = add_area(w, SEGMENT_OTHER, &m->rest[i]);
	return r;
}

static int find_areas(struct work *w, struct file *file)
{
	struct classify_conf conf = { .helper = w->is->conf.helper, .limit_ms = LIMIT_MS };
	struct set set;
	int r = set_open(&set, &conf, &file, 1);

	if (r < 0)
		return r;
	if (set.nr == 0)
		w->is->complete = false;
	else if (set.member[0].typed.nr_variables > 0 && set.member[0].typed.variable[0].kind != SEGMENT_NONE)
		r = add_image(w, &set.member[0]);
	else
		w->is->nr_others++;
	set_close(&set);
	return r;
}

/* --- stores --- */

static bool report_progress(void *userdata, uint64_t done)
{
	struct work *w = userdata;
	const struct images_conf *c = &w->is->conf;

	w->stopped = w->stopped ||
		     !c->step(c->userdata, (uint64_t)((double)w->size * (double)(w->done + done) / (double)MAX(w->all, UINT64_C(1))));
	return !w->stopped;
}

static int write_area(struct work *w, struct scratch *s, size_t i, int fd, struct image_kind *to, enum image_way way)
{
	const struct area *a = &w->area[i];
	struct scratch_file f = { .ino = FIRST_INO + i,
				  .path = w->is->image[a->image].file->path,
				  .fd = fd,
				  .off = a->off,
				  .len = a->len };
	struct scratch_figures figures;
	int r, error;

	r = scratch_write(s, &f, report_progress, w, &figures, &error);
	w->done += a->len;
	if (r < 0)
		return r;
	if (error < 0)
		w->is->complete = false;
	to->by[way].new += figures.new;
	if (way == IMAGE_PAGES) /* the store rounds the last page up, hence MIN */
		to->zero += a->len - MIN(a->len, figures.previous + figures.known + figures.new);
	return 0;
}

/* Compressed size of the chunks in the store, after a sync. */
static int count_compressed(struct scratch *s, uint64_t *ret)
{
	struct engine_stats st;
	int r = engine_sync(s->e);

	if (r < 0)
		return complain(r, "%s: cannot sync the scratch store", s->path);
	engine_stats(s->e, &st);
	*ret = st.compressed_stored;
	return 0;
}

/* Writes the areas of this kind of the image at *at, and advances *at to the next image. */
static int write_image(struct work *w, struct scratch *s, enum segment_kind kind, enum image_way way, size_t *at)
{
	struct image *image = &w->is->image[w->area[*at].image];
	struct image_kind *to = &image->kind[kind];
	_cleanup_(closep) int fd = open_plain_noatime(AT_FDCWD, image->file->path, O_RDONLY | O_CLOEXEC);
	uint64_t before = 0, after = 0;
	int r = count_compressed(s, &before);

	if (fd < 0) {
		complain(-errno, "%s: cannot open", image->file->path);
		w->is->complete = false;
	}
	for (; *at < w->nr && &w->is->image[w->area[*at].image] == image; (*at)++)
		if (fd >= 0 && r == 0 && !w->stopped && (kind == SEGMENT_NONE || w->area[*at].kind == kind))
			r = write_area(w, s, *at, fd, to, way);
	if (r == 0)
		r = count_compressed(s, &after);
	to->by[way].new_zstd = after - before;
	return r;
}

static int measure_kind(struct work *w, enum segment_kind kind, enum image_way way)
{
	const struct images_conf *c = &w->is->conf;
	struct engine_conf conf = { .page = c->page,
				    .cdc = c->cdc,
				    .chunking = way == IMAGE_PAGES ? CHUNKING_PAGE : CHUNKING_CDC,
				    .compress = { .kind = COMPRESS_ZSTD } };
	struct scratch s;
	size_t at = 0;
	int r = scratch_open(&s, c->where, &conf);

	while (r == 0 && at < w->nr && !w->stopped)
		r = write_image(w, &s, kind, way, &at);
	scratch_remove(&s);
	return r;
}

static void add_up(struct images *is)
{
	for (size_t i = 0; i < is->nr; i++)
		for (size_t kind = 0; kind < NR_SEGMENT_KINDS; kind++) {
			const struct image_kind *k = &is->image[i].kind[kind];
			struct image_kind *to = &is->total[kind];

			to->original += k->original;
			to->zero += k->zero;
			for (size_t way = 0; way < NR_IMAGE_WAYS; way++) {
				to->by[way].new += k->by[way].new;
				to->by[way].new_zstd += k->by[way].new_zstd;
			}
		}
}

static int measure(struct work *w)
{
	uint64_t original[NR_SEGMENT_KINDS] = { 0 };
	int r;

	for (size_t i = 0; i < w->is->nr; i++)
		for (size_t kind = 0; kind < NR_SEGMENT_KINDS; kind++)
			original[kind] += w->is->image[i].kind[kind].original;
	w->all = 2 * NR_IMAGE_WAYS * original[SEGMENT_NONE]; /* by kind, and all kinds together */
	r = scratch_check_room(w->is->conf.where, original[SEGMENT_NONE]);
	for (size_t kind = 0; kind < NR_SEGMENT_KINDS; kind++)
		for (size_t way = 0; way < NR_IMAGE_WAYS && r == 0 && !w->stopped && original[kind] > 0; way++)
			r = measure_kind(w, kind, way);
	return r;
}

int images_run(struct images *is, const struct images_conf *conf, const struct files *files)
{
	struct work w = { .is = is, .size = files->size };
	int r = 0;

	*is = (struct images){ .conf = *conf,
			       .image = calloc(MAX(files->nr, (size_t)1), sizeof(*is->image)),
			       .complete = true };
	if (!is->image)
		return -ENOMEM;
	for (size_t i = 0; i < files->nr && r == 0 && report_progress(&w, 0); i++)
		if (files->file[i].error == 0)
			r = find_areas(&w, &files->file[i]);
	if (r == 0)
		r = measure(&w);
	is->stopped = w.stopped;
	is->complete &= !w.stopped;
	add_up(is);
	free(w.area);
	return r;
}

void images_release(struct images *is)
{
	free(is->image);
	*is = (struct images){ 0 };
}
