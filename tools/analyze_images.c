#include "tools/analyze_images.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tools/analyze_sets.h"

#define PAGE 4096u
#define LIMIT_MS 60000 /* for the classifier */

static int init_cutting(struct images *is, enum segment_kind kind, enum image_way way)
{
	size_t memory = MAX(is->conf.memory / (NR_SEGMENT_KINDS * NR_IMAGE_WAYS), (uint64_t)DISTINCT_MEMORY_MIN);

	return cutting_init(&is->cutting[kind][way], way == IMAGE_BY_CONTENT ? 0 : PAGE, &is->conf.cdc, memory);
}

int images_init(struct images *is, const struct images_conf *conf)
{
	int r = 0;

	*is = (struct images){ .conf = *conf, .window = malloc(WINDOW), .exact = true, .complete = true };
	if (!is->window)
		return -ENOMEM;
	for (size_t kind = 0; kind < NR_SEGMENT_KINDS && r == 0; kind++) {
		r = block_init(&is->plain[kind]);
		for (size_t way = 0; way < NR_IMAGE_WAYS && r == 0; way++)
			r = init_cutting(is, kind, way);
	}
	return r;
}

void images_release(struct images *is)
{
	for (size_t kind = 0; kind < NR_SEGMENT_KINDS; kind++) {
		block_release(&is->plain[kind]);
		for (size_t way = 0; way < NR_IMAGE_WAYS; way++)
			cutting_release(&is->cutting[kind][way]);
	}
	free(is->window);
	free(is->image);
	*is = (struct images){ 0 };
}

static int add_window(struct images *is, struct image *image, enum segment_kind kind, size_t len)
{
	struct image_kind *k = &image->kind[kind];
	int r = 0;

	k->original += len;
	for (size_t at = 0; at < len && r == 0; at += BLOCK_SIZE)
		r = block_add(&is->plain[kind], is->window + at, MIN(len - at, (size_t)BLOCK_SIZE), 1, &k->plain);
	for (size_t way = 0; way < NR_IMAGE_WAYS && r == 0; way++)
		r = cutting_add(&is->cutting[kind][way], is->window, len);
	return r;
}

/* A segment is cut as if it were a file: among those of its kind, and among all. -ECANCELED: enough. */
static int add_segment(struct images *is, const struct files *files, struct image *image, const struct set_member *m,
		       enum segment_kind kind, const struct typed_extent *e)
{
	const enum segment_kind both[] = { kind, SEGMENT_NONE };
	uint32_t number = (uint32_t)(image->file - files->file);
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(both); i++)
		for (size_t way = 0; way < NR_IMAGE_WAYS; way++)
			cutting_begin(&is->cutting[both[i]][way], files, number, &image->kind[both[i]].by[way]);
	for (uint64_t at = 0; at < e->len && r == 0; at += WINDOW) {
		size_t n = MIN(e->len - at, (uint64_t)WINDOW);

		r = set_read(m, is->window, n, e->off + at);
		memset(is->window + n, 0, WINDOW - n);
		for (size_t i = 0; i < ARRAY_SIZE(both) && r == 0; i++)
			r = add_window(is, image, both[i], n);
		is->looked_at += n;
		if (r == 0 && !is->conf.step(is->conf.userdata, is->looked_at))
			r = -ECANCELED;
	}
	for (size_t i = 0; i < ARRAY_SIZE(both); i++)
		for (size_t way = 0; way < NR_IMAGE_WAYS && r == 0; way++)
			r = cutting_end(&is->cutting[both[i]][way]);
	return r;
}

/* What was added to it so far is all that it is compared with: the next image is another one. */
static int forget_alone(struct images *is)
{
	int r = 0;

	for (size_t kind = 0; kind < NR_SEGMENT_KINDS && r == 0; kind++) {
		struct cutting *c = &is->cutting[kind][IMAGE_ALONE];

		r = cutting_finish(c);
		is->exact = is->exact && c->distinct.bits == 0;
		cutting_release(c);
		if (r == 0)
			r = init_cutting(is, kind, IMAGE_ALONE);
	}
	return r;
}

static int add_image(struct images *is, const struct files *files, const struct set_member *m)
{
	struct image *image = &is->image[is->nr++];
	int r = 0;

	image->file = m->file;
	for (size_t i = 0; i < m->typed.nr_extents && r == 0; i++) {
		const struct typed_extent *e = &m->typed.extent[i];

		r = add_segment(is, files, image, m, m->typed.variable[e->variable].kind, e);
	}
	for (size_t i = 0; i < m->nr_rest && r == 0; i++) /* headers and the like */
		r = add_segment(is, files, image, m, SEGMENT_OTHER, &m->rest[i]);
	if (r == -EIO || r == -EINVAL) { /* has been complained about */
		is->complete = false;
		r = 0;
	}
	return r == 0 ? forget_alone(is) : r;
}

static int add_file(struct images *is, const struct files *files, struct file *file)
{
	struct classify_conf conf = { .helper = is->conf.helper, .limit_ms = LIMIT_MS };
	struct set set;
	int r;

	r = set_open(&set, &conf, &file, 1);
	if (r < 0)
		return r;
	if (set.nr == 0)
		is->complete = false;
	else if (set.member[0].typed.nr_variables > 0 && set.member[0].typed.variable[0].kind != SEGMENT_NONE)
		r = add_image(is, files, &set.member[0]);
	else
		is->nr_others++;
	set_close(&set);
	return r;
}

static void add_up(struct images *is)
{
	for (size_t i = 0; i < is->nr; i++)
		for (size_t kind = 0; kind < NR_SEGMENT_KINDS; kind++) {
			const struct image_kind *k = &is->image[i].kind[kind];

			is->total[kind].original += k->original;
			figures_add(&is->total[kind].plain, &k->plain);
			for (size_t way = 0; way < NR_IMAGE_WAYS; way++)
				figures_add(&is->total[kind].by[way], &k->by[way]);
		}
}

int images_run(struct images *is, const struct files *files)
{
	int r = 0;

	/* they must not move: blocks have pointers to figures */
	is->image = calloc(MAX(files->nr, (size_t)1), sizeof(*is->image));
	if (!is->image)
		return -ENOMEM;
	for (size_t i = 0; i < files->nr && r == 0; i++)
		r = add_file(is, files, &files->file[i]);
	if (r == -ECANCELED) {
		is->complete = false;
		r = 0;
	}
	for (size_t kind = 0; kind < NR_SEGMENT_KINDS && r == 0; kind++) {
		r = block_flush(&is->plain[kind]);
		for (size_t way = 0; way < NR_IMAGE_WAYS && r == 0; way++) {
			r = cutting_finish(&is->cutting[kind][way]);
			is->exact = is->exact && is->cutting[kind][way].distinct.bits == 0;
		}
	}
	add_up(is);
	return r;
}
