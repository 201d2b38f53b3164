/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Writing the changed recipes of files to the view. */
#pragma once

struct engine;

/* Put all dirty contents into the view's memtable. Changes are locked out, or no other thread runs yet. Readers are not
 * locked out: a content stays dirty and in memory until the view has it. */
int files_write_back(struct engine *e);
/* Put most of them into it, while changes continue. Until the view is cut it may mix several moments: contents that
 * change meanwhile are left for files_write_back(). */
int files_write_back_ahead(struct engine *e);
