/* What an analysis has found: which setting is the best, for people and as JSON. */
#pragma once

#include "tools/analyze.h"
#include "tools/analyze_images.h"
#include "tools/analyze_variables.h"

/* What a mount could be told. */
struct setting {
	size_t cutting;	   /* number of it */
	int codec;	   /* enum codec, -1: none */
	uint64_t expected; /* bytes stored */
	char options[96];  /* for -o */
	char why[512];
};

/* The smallest, unless something simpler is nearly as small. */
void setting_recommend(const struct analysis *a, struct setting *ret);

void report_text(const struct analysis *a, const struct files *files, const struct setting *s);
/* v: NULL if variables were not looked at; rivals, images: likewise. */
void report_json(const struct analysis *a, const struct files *files, const struct setting *s,
		 const struct variables *v, const struct rival *rivals, const struct images *images);

/* "pages of 4 KiB", "chunks by content" */
struct cutting_name {
	char s[40];
};
struct cutting_name cutting_name(const struct cutting *c);
