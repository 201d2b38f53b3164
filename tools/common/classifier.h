/* Where ckptfs-classify is: beside the program that asks, as in a build tree, or where it is installed. */
#pragma once

#include <limits.h>

void classifier_find(char ret_path[PATH_MAX]);
