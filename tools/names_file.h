/* A file of rules for names of variables (store/classify/names.h), as --names gives it. */
#pragma once

#include "store/classify/names.h"

/* What is wrong has been told, by the name of the option; <0. `ret` is for classify_conf. */
int names_file_read(const char *path, char ret[NAMES_TEXT_MAX + 1]);
