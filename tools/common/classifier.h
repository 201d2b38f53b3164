/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The path of ckptfs-classify: beside the calling program, as in a build tree, or where it is installed. */
#pragma once

#include <limits.h>

void classifier_find(char ret_path[PATH_MAX]);
