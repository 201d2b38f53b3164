/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Directories that come and go. */
#pragma once

int scratch_remove(const char *dir); /* with all that is in it; fine if it is not there */
int scratch_empty(const char *dir); /* make it, or empty it */
