/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Previous versions of a file, in whose recipes new chunks are looked up first. */
#pragma once

#include <stdbool.h>

struct champions;
struct content;

/* Each file has such an object (content_champions()), which store/file makes and frees with it. */
struct champions *champions_new(struct content *of); /* NULL: -ENOMEM */
void champions_free(struct champions *p); /* after content_set_champions(c, NULL, 0); NULL is fine */
/* at most CHAMPIONS_MAX, referenced */
unsigned champions_get(struct content *c, bool even_useless, struct content **ret);
bool champion_is_useful(struct content *c, const struct content *champion);
void champion_knew(struct content *c, const struct content *champion, unsigned pages, unsigned of_pages);
