/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Recovery of the view at open. */
#pragma once

struct engine;
struct pack_marks;

/* replay the journal into the view; returns the marks to truncate the packs at */
int recover_view(struct engine *e, struct pack_marks *ret);
