/* How ckptfs-stat prints what it has learnt. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct json_flat;

/* Of the files below a directory. */
struct stat_sums {
	uint64_t files, directories;
	uint64_t size, mapped, extents, frames;
	uint64_t not_durable; /* files */
};

void stat_show_mount(const struct json_flat *j);
void stat_show_file(const char *path, const struct json_flat *j);
void stat_show_sums(const char *path, const struct stat_sums *s);

void stat_print_document(const char *path, const char *json); /* with the path put in */
void stat_print_sums(const char *path, const struct stat_sums *s);
void stat_print_metrics(const struct json_flat *mounts, size_t nr); /* all at once: a metric is introduced once */
