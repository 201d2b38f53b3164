/* How ckptfs-stat prints what it has learnt. An answer may come from another user's filesystem: its strings are
 * escaped. */
#pragma once

#include <stdio.h>

struct ckptfs_exclusive;
struct json_flat;
struct stat_sums;

void stat_show_head(FILE *to, const struct json_flat *mount);
void stat_show_mount(FILE *to, const struct json_flat *mount);
/* In all that follow `x` is what deleting it would free, NULL: not known. */
void stat_show_file(FILE *to, const char *path, const struct json_flat *j, const struct ckptfs_exclusive *x);
void stat_show_sums(FILE *to, const char *path, const struct stat_sums *s, const struct ckptfs_exclusive *x);

/* With the path put in. */
void stat_print_document(FILE *to, const char *path, const char *json, const struct ckptfs_exclusive *x);
void stat_print_sums(FILE *to, const char *path, const struct stat_sums *s, const struct ckptfs_exclusive *x);

/* The answer of --if-deleted; never NULL. */
void stat_show_set(FILE *to, char *const paths[], size_t nr, const struct ckptfs_exclusive *x);
void stat_print_set(FILE *to, char *const paths[], size_t nr, const struct ckptfs_exclusive *x);
