/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Deduplication domains: which files may share chunks. */
#pragma once

struct content;
struct fp;

/* The fingerprint tweak of all new bytes of c, from its current owner. */
int content_tweak(struct content *c, struct fp *ret);
/* Do new bytes of both belong to the same domain, by current owners? 1/0/<0. Costs a lookup each if the store has
 * domains. */
int content_same_domain(struct content *a, struct content *b);
int content_may_share(struct content *from, struct content *to); /* 0 or -EXDEV, or <0 */
