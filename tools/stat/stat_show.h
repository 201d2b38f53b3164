/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Output of ckptfs-stat. Figures may come from another user's filesystem, so strings are escaped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct ckptfs_exclusive;
struct json_flat;
struct stat_sums;

/* A tier that is mounted by itself. */
void stat_show_tier(FILE *to, const struct json_flat *j);
void stat_show_head(FILE *to, const struct json_flat *mount);
/* `nr_sealed`: sealed checkpoints; 0: none, or not counted. `verbose`: memory, fast paths and latencies, too. Fast paths
 * that are off are always shown. */
void stat_show_mount(FILE *to, const struct json_flat *mount, size_t nr_sealed, bool verbose);
/* In all functions below, `x` is the space that deletion would free; NULL: unknown. */
void stat_show_file(FILE *to, const char *path, const struct json_flat *j, const struct ckptfs_exclusive *x);
void stat_show_sums(FILE *to, const char *path, const struct stat_sums *s, const struct ckptfs_exclusive *x);

/* Prints the document with the path added. */
void stat_print_document(FILE *to, const char *path, const char *json, const struct ckptfs_exclusive *x);
void stat_print_sums(FILE *to, const char *path, const struct stat_sums *s, const struct ckptfs_exclusive *x);

/* Output of --if-deleted; `x` is not NULL. */
void stat_show_set(FILE *to, char *const paths[], size_t nr, const struct ckptfs_exclusive *x);
void stat_print_set(FILE *to, char *const paths[], size_t nr, const struct ckptfs_exclusive *x);
