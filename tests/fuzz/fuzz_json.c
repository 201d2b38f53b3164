/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Any bytes as JSON: tokens come to an end; the daemon's figures are parsed or refused, and what was parsed can be asked
 * and shown. Any bytes as a string: written, and read back the same.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_flat.h"
#include "base/json/json_pull.h"
#include "base/json/json_write.h"
#include "client/figures.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition) ((condition) ? (void)0 : abort())

static void pull_all(const char *p, size_t size)
{
	struct json_pull j = { .p = p, .end = p + size };
	enum json_token token;
	char text[64];
	uint64_t n;

	while ((token = json_pull(&j)) != JSON_END && token != JSON_BAD)
		if (token == JSON_STRING)
			json_decode(&j, text, sizeof(text));
		else if (token == JSON_NUMBER)
			json_number(&j, &n);
	REQUIRE(json_pull(&j) == token);
}

static void show_figures(const char *p, size_t size)
{
	struct json_flat j;
	char *text = NULL;
	size_t len = 0;
	FILE *to;

	if (json_flat_parse(p, size, &j) < 0)
		return;
	to = open_memstream(&text, &len);
	if (to) {
		figures_print_metrics(to, &j, 1);
		fclose(to);
	}
	free(text);
	json_flat_release(&j);
}

/* U+0080 to U+009F and U+00AD, which begin with the byte 0xc2, are written as the bytes are that are not UTF-8. */
static void write_and_read(const char *p, size_t size)
{
	struct buf b = BUF_EMPTY;
	struct json j = json_to(&b);
	struct json_pull read;
	char text[256], back[256];

	if (size >= sizeof(text) || memchr(p, '\0', size) || memchr(p, 0xc2, size))
		return;
	memcpy(text, p, size);
	text[size] = '\0';
	json_string(&j, NULL, text);
	REQUIRE(buf_error(&b) == 0);
	read = (struct json_pull){ .p = (const char *)b.data, .end = (const char *)b.data + b.len };
	REQUIRE(json_pull(&read) == JSON_STRING && json_decode(&read, back, sizeof(back)) == 0);
	REQUIRE(strcmp(text, back) == 0 && json_pull(&read) == JSON_END);
	buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data;

	pull_all(p, size);
	show_figures(p, size);
	if (size > 0)
		write_and_read(p, size);
	return 0;
}
