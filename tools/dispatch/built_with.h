/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The versions of libraries and tools that this ckptfs was built with, as meson found them. */
#pragma once

struct built_with {
	const char *name, *version;
};

extern const struct built_with built_with[]; /* ends with a name that is NULL */
