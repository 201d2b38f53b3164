/* How ckptfs-stat prints what it has learnt. */
#pragma once

#include <stdio.h>

struct json_flat;
struct stat_sums;

void stat_show_head(FILE *to, const struct json_flat *mount);
void stat_show_mount(FILE *to, const struct json_flat *mount);
void stat_show_file(FILE *to, const char *path, const struct json_flat *j);
void stat_show_sums(FILE *to, const char *path, const struct stat_sums *s);

void stat_print_document(FILE *to, const char *path, const char *json); /* with the path put in */
void stat_print_sums(FILE *to, const char *path, const struct stat_sums *s);
