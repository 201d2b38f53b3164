/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The last step: general compression of the sections, which the other steps have made repetitive. */
#pragma once

#include "store/codec/code_format.h"

struct code_entropy_work;
struct code_entropy_work *code_entropy_new(void); /* NULL: no memory */
void code_entropy_free(struct code_entropy_work *w); /* NULL is fine */

/* Returns fewer than len bytes, or 0: it does not shrink; -ENOMEM. `ret` has room for len. */
int code_entropy_in(struct code_entropy_work *w, enum code_entropy entropy, int level, const void *p, size_t len,
		    void *ret);
/* Decompress to exactly ret_len bytes: 0, -EBADMSG, -ENOMEM. */
int code_entropy_out(struct code_entropy_work *w, enum code_entropy entropy, const void *p, size_t len, void *ret,
		     size_t ret_len);
