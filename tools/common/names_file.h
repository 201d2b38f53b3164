/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The option --names: a file with rules for names of variables (store/classify/names.h). */
#pragma once

#include "base/conf.h"
#include "store/classify/names.h"

struct names_file {
	bool is_given;
	char text[NAMES_TEXT_MAX + 1]; /* for classify_conf */
};

#define NAMES_FILE_OPTION(type, field) \
	{ "names", CONF_PARSED, offsetof(type, field), .parse = names_file_parse, .value = "FILE", \
	  .help = "rules that map names of variables: an expression and a new name on each line" }

int names_file_parse(const struct conf_key *k, void *conf, const char *path, const char **ret_why);
