/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * json_value KEY...: what the object on standard input has there, a line each: strings decoded, all else as it is
 * written. A key with dots leads into objects inside objects: scrub.round.bytes. The whole input has to be JSON.
 * Scripts ask for figures hundreds of times, and until they change; to start Python each time takes ten times as long.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_pull.h"

static bool print_value(struct json_pull *j, enum json_token token)
{
	const char *begin = j->text;
	char *text;
	bool good;

	switch (token) {
	case JSON_STRING:
		text = malloc(j->len + 1);
		good = text && json_decode(j, text, j->len + 1) == 0 && puts(text) >= 0;
		free(text);
		return good;
	case JSON_NUMBER:
	case JSON_WORD:
		return printf("%.*s\n", (int)j->len, j->text) > 0;
	case JSON_OBJECT:
	case JSON_ARRAY:
		begin = j->p - 1;
		return json_skip(j, token) == 0 && printf("%.*s\n", (int)(j->p - begin), begin) > 0;
	default:
		return false;
	}
}

/* The value of `key` in the object whose first token was read: 1 printed, 0 not there, -1 no JSON. */
static int find(struct json_pull *j, const char *key)
{
	size_t len = strcspn(key, ".");
	int found = 0;
	enum json_token token = json_pull(j);

	while (token != JSON_OBJECT_END) {
		bool is_key = token == JSON_STRING && j->len == len && memcmp(j->text, key, len) == 0;

		if (token != JSON_STRING || json_pull(j) != JSON_COLON)
			return -1;
		token = json_pull(j);
		if (is_key && key[len] == '.' && token == JSON_OBJECT)
			found = find(j, key + len + 1);
		else if (is_key && key[len] == '\0')
			found = print_value(j, token) ? 1 : -1;
		else if (json_skip(j, token) < 0)
			return -1;
		if (found < 0)
			return -1;
		token = json_pull(j);
		if (token == JSON_COMMA)
			token = json_pull(j);
		else if (token != JSON_OBJECT_END)
			return -1;
	}
	return found;
}

int main(int argc, char *argv[])
{
	char *input = NULL;
	size_t len = 0;

	if (getdelim(&input, &len, '\0', stdin) < 0) {
		fprintf(stderr, "json_value: no input\n");
		return 1;
	}
	for (int i = 1; i < argc; i++) {
		struct json_pull j = { .p = input, .end = input + strlen(input) };
		int r = json_pull(&j) == JSON_OBJECT ? find(&j, argv[i]) : -1;

		if (r >= 0 && json_pull(&j) != JSON_END)
			r = -1;
		if (r <= 0) {
			fprintf(stderr, "json_value: %s: %s\n", argv[i], r < 0 ? "no JSON" : "not there");
			return 1;
		}
	}
	free(input);
	return 0;
}
